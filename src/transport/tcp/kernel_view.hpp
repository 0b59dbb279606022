// SPDX-License-Identifier: Apache-2.0
// kernel_view: what the kernel knows of a TCP connection, and the options of its socket. The peer's kernel acknowledges even while its
// process computes or is stopped, so this tells a dead host from a busy one.
#pragma once

#include "core/platform.hpp"

#include <chrono>
#include <cstdint>

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
// that an idle peer's host has gone, even if no operation waits for it (heartbeat.hpp covers the other case).
// TCP_USER_TIMEOUT stays unset, although it would bound the wait for an acknowledgement. It also ends
// connections to live peers that do not read for that long, and a rank that computes may be slow to read.
// (Measured: a full receive window and a limit of 2 s, ETIMEDOUT after 2.5 s.)
void set_up_connection(int fd, std::chrono::milliseconds silence_limit) noexcept;

}  // namespace tutti::transport::tcp
