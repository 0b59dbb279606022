// SPDX-License-Identifier: Apache-2.0
// transport: one way of reaching peers.
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

// Which peers a listener is for.
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
  // Accepts connections from now on: the world is known. `info` and `up` outlive the transport.
  virtual void open(const core::world_info& info, inbound& up) = 0;
  virtual bool reaches(const core::endpoint_record& mine,
                       const core::endpoint_record& peer) const noexcept = 0;
  // The link to a peer, made on the first call; the same for both directions. It lives as long as the
  // transport.
  virtual link& link_to(int peer) = 0;
  // That link if either side has made it; otherwise null. A link that is not reported here is not watched.
  virtual link* made_link(int /*peer*/) noexcept { return nullptr; }
  // Not null if the peers that it reaches can read each other's memory.
  virtual neighbours* memory() noexcept { return nullptr; }
  // Whether frames wait to leave, for room or for their connection.
  virtual bool has_queue() const noexcept = 0;
  // Ends the world normally: tells every connected peer, sends queued frames, and waits until the peers have
  // the bytes, or until the deadline. Afterwards nothing of this transport is in the loop.
  virtual task<> leave(core::time_point deadline) = 0;
  // Ends the world now: cuts every connection, so that peers see it at once.
  virtual void cut() noexcept = 0;
};

}  // namespace tutti::transport
