// SPDX-License-Identifier: Apache-2.0
// One way of reaching peers.
#pragma once

#include "core/loop.hpp"
#include "core/world_info.hpp"
#include "transport/link.hpp"
#include "transport/neighbours.hpp"

#include <memory>
#include <optional>
#include <string>
#include <tutti/task.hpp>
#include <utility>

namespace tutti::transport {

// Which peers a listener is to be for.
struct listen_wish {
  listen_wish(bool proves_identity, std::optional<std::string> host = std::nullopt)
      : authenticated(proves_identity), towards(std::move(host)) {}
  bool authenticated;  // connections must prove that they know a secret
  std::optional<std::string>
      towards;  // the host where the ranks meet; "": any other host; null: this host is enough
};

class transport {
 public:
  virtual ~transport() = default;
  virtual const char* name() const noexcept = 0;
  // Opens the listener and enters its address into this rank's endpoint record, before the world is known.
  // Throws tutti::error.
  virtual void listen(core::endpoint_record& mine, const listen_wish& wish) = 0;
  // The world is known: incoming connections are accepted from now on. `info` and `up` outlive the transport.
  virtual void open(const core::world_info& info, inbound& up) = 0;
  virtual bool reaches(const core::endpoint_record& mine,
                       const core::endpoint_record& peer) const noexcept = 0;
  // The link to a peer, made on the first call; the same for both directions. Lives as long as the transport.
  virtual link& link_to(int peer) = 0;
  // That link, where it has been made, by either side; else null. What is not made here is not watched.
  virtual link* made_link(int /*peer*/) noexcept { return nullptr; }
  // Not null when the peers it reaches can read each other's memory.
  virtual neighbours* memory() noexcept { return nullptr; }
  // Frames wait to leave, for room or for their connection.
  virtual bool has_queue() const noexcept = 0;
  // The world ends normally: tells every connected peer, lets what is queued leave, and waits, until the
  // deadline at the longest, until the bytes are safe with the peers. Afterwards nothing of this transport is
  // in the loop.
  virtual task<> leave(core::time_point deadline) = 0;
  // The world ends now: every connection is cut, so that peers see it at once.
  virtual void cut() noexcept = 0;
};

}  // namespace tutti::transport
