// SPDX-License-Identifier: Apache-2.0
// neighbours: the ranks of this host whose memory this rank reads in place, without messages.
#pragma once

#include "base/shared_memory.hpp"
#include "core/engine.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::transport {

class neighbours {
 public:
  // Lets `peer` map the region of `place`; its descriptor is sent once, before any later message. Returns
  // false without a connection, or without room for the descriptor.
  virtual bool show(int peer, const base::shared_place& place) noexcept = 0;
  // Returns `bytes` bytes from `offset` of a region that `peer` has shown. Returns null if the region is
  // unknown, cannot be mapped or is shorter. It stays mapped as long as the transport lives, whatever happens
  // to the peer.
  virtual const std::byte* find_memory(int peer, std::uint64_t region, std::uint64_t offset,
                                       std::uint64_t bytes) noexcept = 0;
  // A word that is not 0 while the peer sleeps or is about to. After writing what the peer waits for, fence,
  // read this word, and notify the peer if it is set. Null without a connection. It stays valid as long as
  // the transport.
  virtual const std::atomic<std::uint32_t>* sleeps(int peer) noexcept = 0;
  virtual void notify(int peer) noexcept = 0;
  // Adds a watcher that is polled with the links. It is armed after the word that says that this rank sleeps
  // has been set.
  virtual void add(core::source& watcher) = 0;
  virtual void remove(core::source& watcher) noexcept = 0;

 protected:
  ~neighbours() = default;
};

}  // namespace tutti::transport
