// SPDX-License-Identifier: Apache-2.0
// heartbeat: judges whether the peer of a connection answers, and whether its host does. It touches no
// socket.
//
// If nothing has come from the peer lately, a frame asks its loop, which answers by a frame. Everything that
// makes the peer's kernel acknowledge asks its host: that frame, data, or the kernel's own probes. So a peer
// that computes, is stopped or does not read never counts as dead. TCP_USER_TIMEOUT would not do: it ends
// connections to living hosts whose window is full.
#pragma once

#include "transport/link.hpp"
#include "transport/tcp/kernel_view.hpp"

#include <chrono>
#include <cstdint>

namespace tutti::transport::tcp {

class heartbeat {
 public:
  // `limit`: how long a host that is asked may be silent; zero: for ever.
  explicit heartbeat(std::chrono::milliseconds limit) noexcept : limit_(limit) {}

  // How often to check, so that silence is found within the limit.
  static core::duration period(std::chrono::milliseconds limit) noexcept;

  // `waiting_to_leave`: the frame that asks is still in the outbox.
  peer_health examine(const health_check& l, const kernel_view& kernel, bool waiting_to_leave) noexcept;
  // Whether, as of the last check, the loop is to be asked now; call asked() when that has been done.
  bool to_ask() const noexcept { return to_ask_; }
  void asked(core::time_point now) noexcept;
  // It is not examined for a while.
  void rest() noexcept { watched_ = false; }

 private:
  peer_health host(const health_check& l, const kernel_view& kernel) noexcept;

  const std::chrono::milliseconds limit_;
  bool watched_ = false;
  core::time_point began_{};  // start of the watch
  // Of the host: since when it owes an answer.
  bool owes_ = false;
  core::time_point owes_since_{};
  // Of the loop: a question is in flight.
  bool to_ask_ = false;
  bool asked_ = false;
  core::time_point asked_at_{};
  // start of its silence: later than asked_at_ while the question was on its way
  core::time_point counted_from_{};
  bool has_left_ = false;
  std::uint64_t arrives_with_ = 0;  // the question has arrived when this many bytes are acknowledged
  std::uint64_t acknowledged_ = 0;  // as of the last check
  unsigned unanswered_ = 0;         // questions in a row
};

}  // namespace tutti::transport::tcp
