// SPDX-License-Identifier: Apache-2.0
// control_plane: the messages between endpoints about communicators: failures, agreements, notices and
// inquiries. Keeps the failures of communicators that are not open here, for members that learn of them later.
#pragma once

#include "p2p/contexts.hpp"
#include "p2p/control_messages.hpp"
#include "p2p/peers.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::p2p {

class control_plane {
 public:
  control_plane(router& routes, peers& all, contexts& open) noexcept
      : routes_(routes), peers_(all), contexts_(open) {}

  // Sends a message of control_messages.hpp; best effort.
  template <class Message>
  void send(std::uint32_t context, int peer, const Message& m) noexcept {
    peers_.post(peer, m.encode(context));
  }
  // Acts on a frame of such a message. `payload` is valid until this returns.
  void received(int peer, const frame& head, std::span<const std::byte> payload) noexcept;

  // Tells `peer`, whose frame of this context was dropped, that it is no member there. It is hostile, or a hostile
  // rank has told it of other members: then its communicator fails.
  void turn_away(int peer, std::uint32_t context) noexcept;

  // Makes sure that the end of `peer` would be noticed: connects to it if there is no connection yet.
  void get_in_touch(int peer) noexcept {
    if (!peers_.in_touch(peer)) peers_.send_credit(peer);
  }
  // Makes sure that `peer` will hear that this rank leaves: connects if nothing has come from it yet. That a
  // frame was sent is not enough: it may have been taken back before there was a connection.
  void meet(int peer) noexcept {
    if (!peers_[peer].heard) peers_.send_credit(peer);
  }

  // Keeps a failure for peers that learn later that the communicator of `context` is closed. The latest 96
  // are kept, including those for tell_early_failure().
  void keep_failure(std::uint32_t context, failure_message what) noexcept {
    keep(context, peers_.rank(), std::move(what));
  }
  // Tells `owner` of a failure in a peer that had the context before this rank.
  void tell_early_failure(std::uint32_t context, context_owner& owner) noexcept;
  // Tells `peer` that this rank has closed the context or is about to, after the failure that was kept; best
  // effort.
  void announce_closing(std::uint32_t context, int peer) noexcept;

 private:
  static constexpr std::size_t most_kept_failures = 96;
  // A failure of a context that is not open here: not yet, or no longer.
  struct kept_failure {
    std::uint32_t context;
    int peer;  // this rank itself, for a context that it has closed
    failure_message what;
  };
  void act_on(int peer, const frame& head, std::span<const std::byte> payload);
  void keep(std::uint32_t context, int peer, failure_message what);
  void send_kept_failure(std::uint32_t context, int peer) noexcept;
  void failed(int peer, std::uint32_t context, failure_message told);
  void asked(int peer, std::uint32_t context, const inquiry_message& asks) noexcept;
  void answered(int peer, std::uint32_t context, const progress_message& there) noexcept;

  router& routes_;
  peers& peers_;
  contexts& contexts_;
  std::vector<kept_failure> kept_failures_;  // the oldest first
};

}  // namespace tutti::p2p
