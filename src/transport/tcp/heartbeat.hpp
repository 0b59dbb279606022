// SPDX-License-Identifier: Apache-2.0
// Whether the peer of a connection answers, and whether its host does. It judges, and touches no socket.
//
// The peer's loop is asked by a frame, when nothing has come from it of late, and answers by one. Its host is
// asked by whatever makes its kernel acknowledge: that frame, data, or the kernel's own probes; so a peer
// that computes, is stopped or does not read is not taken for dead, however long. TCP_USER_TIMEOUT would be:
// it ends connections to living hosts whose window is full.
#pragma once

#include "transport/peer_health.hpp"
#include "transport/tcp/kernel_view.hpp"

#include <chrono>
#include <cstdint>

namespace tutti::transport::tcp {

class heartbeat {
 public:
  // `limit`: for how long a host that is asked may say nothing; zero: for ever.
  explicit heartbeat(std::chrono::milliseconds limit) noexcept : limit_(limit) {}

  // How often to look, so that silence is found out within the limit.
  static core::duration period(std::chrono::milliseconds limit) noexcept;

  // `waiting_to_leave`: the frame that asks is still in the outbox.
  peer_health examine(const health_check& l, const kernel_view& kernel, bool waiting_to_leave) noexcept;
  // As of the last look: the loop is to be asked now, with asked() when that has been done.
  bool to_ask() const noexcept { return to_ask_; }
  void asked(core::time_point now) noexcept;
  // It is not examined for a while.
  void rest() noexcept { watched_ = false; }

 private:
  peer_health host(const health_check& l, const kernel_view& kernel) noexcept;

  const std::chrono::milliseconds limit_;
  bool watched_ = false;
  core::time_point began_{};  // to be watched
  // Of the host: since when it owes an answer.
  bool owes_ = false;
  core::time_point owes_since_{};
  // Of the loop: a question is out.
  bool to_ask_ = false;
  bool asked_ = false;
  core::time_point asked_at_{};
  core::time_point counted_from_{};  // of its silence: later than asked_at_ while the question was on its way
  bool has_left_ = false;
  std::uint64_t arrives_with_ = 0;  // this many bytes acknowledged
  std::uint64_t acknowledged_ = 0;  // as of the last look
  unsigned unanswered_ = 0;         // questions, in a row
};

}  // namespace tutti::transport::tcp
