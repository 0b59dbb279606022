// SPDX-License-Identifier: Apache-2.0
// The ranks of this host whose memory this rank reads in place, without messages.
#pragma once

#include "base/shared_memory.hpp"
#include "core/engine.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::transport {

class neighbours {
 public:
  // Lets `peer` map the region of `place`; the descriptor goes there once. What is sent to the peer
  // afterwards comes after it. False: no connection, or no room for the descriptor.
  virtual bool show(int peer, const base::shared_place& place) noexcept = 0;
  // `bytes` bytes from `offset` of a region that `peer` has shown; null when that is not known, cannot be
  // mapped, or is shorter. Stays mapped as long as the transport lives, whatever becomes of the peer.
  virtual const std::byte* find_memory(int peer, std::uint64_t region, std::uint64_t offset,
                                       std::uint64_t bytes) noexcept = 0;
  // Not 0 while the peer sleeps, or is about to: after writing what it waits for, a full fence, and a look at
  // this word, it must be notified. Null without a connection. Stays as long as the transport.
  virtual const std::atomic<std::uint32_t>* sleeps(int peer) noexcept = 0;
  virtual void notify(int peer) noexcept = 0;
  // `watcher` is polled with the links, and armed when the word that says that this rank sleeps has been set.
  virtual void add(core::source& watcher) = 0;
  virtual void remove(core::source& watcher) noexcept = 0;

 protected:
  ~neighbours() = default;
};

}  // namespace tutti::transport
