// SPDX-License-Identifier: Apache-2.0
// receive_cancellation: receives that end early, by their owner or by the other side. The owner may reuse the
// buffer at once.
//
// Invariant: a receive that ends does not lose its message. The part that has come is kept as if it had come
// before its receive, in its place among the others. The next receive that accepts it goes on from there. The
// cases of a receive:
//
// - An eager frame is arriving: the link moves its destination to memory of the endpoint
//   (link::redirect_destination), with the part that has come.
// - A message was asked for by cts: it gets memory of its size, and its transfer id stands for that
//   memory from now on. So its data frames go on, and the next receive takes over both. Without memory the
//   message is lost, and the receive ends with errc::resources.
// - The link reads the message itself: it stays with its sender, its slot goes back to offered, and the next
//   receive starts again.
// - Complete but not yet reported: dropping the receive queues the message again. Cancelling it is too late
//   and reports the result.
//
// A receive that was cutting its message off ends with errc::truncated. A receive whose message is taken back
// before any of it came waits again in its place in the order of posting; later it ends with errc::cancelled,
// naming the sender. Later messages that other receives have been given meanwhile stay with those: only
// unmatched messages have an order to keep. Receives of collectives are the exception: their communicator
// fails, and their messages are dropped.
#pragma once

#include "match/matcher.hpp"
#include "p2p/peers.hpp"
#include "p2p/receives.hpp"
#include "p2p/transfer_states.hpp"
#include "p2p/unexpected_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::p2p {

class receive_cancellation {
 public:
  receive_cancellation(core::engine& engine, peers& all, match::matcher& matching, receive_ids& ids,
                       unexpected_queue& early, receives& running) noexcept
      : engine_(engine), peers_(all), matcher_(matching), ids_(ids), unexpected_(early), receives_(running) {}

  // Contracts: class endpoint.
  void release(receive& r) noexcept;
  void fail(receive& r, errc code, const std::string& text) noexcept;

  // The sender takes back a message whose rts has gone.
  void end_cancel(int peer, const transport::frame& head) noexcept;
  // The link to `peer` has ended. Messages that had come whole can still be received; partial ones cannot.
  void peer_closed(int peer) noexcept;

  // Number of messages whose receive ended early, and which were kept for another.
  std::uint64_t given_back() const noexcept { return given_back_; }

 private:
  void end_early(receive& r, errc code, const std::string& text, bool keep) noexcept;
  // Detaches a receive: on return nothing refers to it or its buffer. Returns its message if it has one that
  // is to be kept; `lost` is set if there is no memory for it.
  unexpected* detach(receive& r, bool keep, bool& lost) noexcept;
  unexpected* detach_arriving(receive& r, transport::link* link, bool keep, bool& lost) noexcept;
  unexpected* detach_cleared(receive& r, transport::link* link, bool keep, bool& lost) noexcept;
  // Memory for the message of `r`; nullptr: there is none.
  unexpected* memory_for(const receive& r, transport::frame_kind kind, std::size_t bytes) noexcept;
  unexpected* keep_whole(const receive& r) noexcept;
  void keep_arriving(receive& r, unexpected& u) noexcept;
  void offer(unexpected& u) noexcept;
  void wait_again(receive& r) noexcept;
  void drop_arriving(int peer) noexcept;

  core::engine& engine_;
  peers& peers_;
  match::matcher& matcher_;
  receive_ids& ids_;
  unexpected_queue& unexpected_;
  receives& receives_;
  std::uint64_t given_back_ = 0;
};

}  // namespace tutti::p2p
