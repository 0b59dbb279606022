// SPDX-License-Identifier: Apache-2.0
// heartbeat: judges whether the peer of a TCP connection answers, and whether its host does, by what the kernel
// knows of the connection. The peer's kernel acknowledges even while its process computes or is stopped, so this
// tells a dead host from a busy one.
//
// If nothing has come from the peer lately, a frame asks its loop, which answers by a frame. Everything that
// makes the peer's kernel acknowledge asks its host: that frame, data, or the kernel's own probes. So a peer
// that computes, is stopped or does not read never counts as dead.
#pragma once

#include "transport/link.hpp"

#include <chrono>
#include <cstdint>
#include <optional>

namespace tutti::transport::tcp {

struct kernel_view {
  core::duration quiet{};          // since anything has come from the peer's host
  core::duration data_quiet{};     // since data have
  core::duration sent_quiet{};     // since data last left, the first time or again
  std::uint64_t acknowledged = 0;  // bytes, from the beginning of the connection
  std::uint64_t held = 0;          // bytes that the kernel has been given and that are not acknowledged
  bool in_flight = false;          // some of those have left
  bool room = false;               // the peer has room for more, as far as is known
  // Unanswered keepalive probes, or questions for room, in a row.
  unsigned probes = 0;
};

// Returns false if the kernel does not say.
bool view_kernel(int fd, kernel_view& view) noexcept;

// Makes the kernel probe an idle peer's kernel every second instead of every five, or back. It repeats the
// probe at least twice, for at least `limit` in total, before it breaks the connection itself.
void watch_closely(int fd, bool closely) noexcept;

// Sets the options of a connected socket. No Nagle: frames leave at once. Keepalive finds within about 8 s
// that an idle peer's host has gone, even if no operation waits for it (the class heartbeat covers the other
// case).
// TCP_USER_TIMEOUT stays unset, although it would bound the wait for an acknowledgement. It also ends
// connections to live peers that do not read for that long, and a rank that computes may be slow to read.
// (Measured: a full receive window and a limit of 2 s, ETIMEDOUT after 2.5 s.)
void set_up_connection(int fd, std::chrono::milliseconds silence_limit) noexcept;

class heartbeat {
 public:
  // `limit`: how long a host that is asked may be silent; zero: for ever.
  explicit heartbeat(std::chrono::milliseconds limit) noexcept : limit_(limit) {}

  // How often to check, so that silence is found within the limit.
  static core::duration period(std::chrono::milliseconds limit) noexcept;

  struct finding {
    peer_health health;
    bool ask = false;  // the frame that asks is to be sent now
  };
  // `waiting_to_leave`: that frame is still in the outbox.
  finding examine(const health_check& l, const kernel_view& kernel, bool waiting_to_leave) noexcept;
  // Whether it is examined now. After rest() it is not for a while.
  bool watched() const noexcept { return watched_; }
  void rest() noexcept { watched_ = false; }

 private:
  peer_health host(const health_check& l, const kernel_view& kernel) noexcept;

  const std::chrono::milliseconds limit_;
  bool watched_ = false;
  core::time_point began_{};  // start of the watch
  // Of the host: since when it owes an answer.
  std::optional<core::time_point> owes_since_;
  // Of the loop: questions in a row without an answer, and when the first was asked.
  unsigned unanswered_ = 0;
  core::time_point asked_at_{};
  // start of its silence: later than asked_at_ while the question was on its way
  core::time_point counted_from_{};
  // The question has arrived when this many bytes are acknowledged; empty: it has not left yet.
  std::optional<std::uint64_t> arrives_with_;
  std::uint64_t acknowledged_ = 0;  // as of the last check
};

}  // namespace tutti::transport::tcp
