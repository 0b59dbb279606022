// SPDX-License-Identifier: Apache-2.0
// Descriptors that pass over connected AF_UNIX sockets (SCM_RIGHTS), and whose process is at the other end.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <span>

namespace tutti::base {

// Sends one or two descriptors with a few bytes, at least one: all or nothing. Returns false if the socket would
// block or is broken (errno), or too many descriptors are in flight.
bool send_descriptors(int socket, std::span<const int> descriptors, std::span<const std::byte> with) noexcept;

// What has come of one send_descriptors().
struct passed_descriptors {
  ssize_t bytes = -1;  // as from recvmsg(2): -1 with errno; 0: the other end has hung up
  // Missing if this process may open no more.
  std::array<unique_fd, 2> descriptors;
  bool cut_off = false;
};
// Receives as recvmsg(2) with these flags does.
passed_descriptors receive_descriptors(int socket, std::span<std::byte> with, int flags) noexcept;

// Whether the process at the other end runs as this user (or as root).
bool same_user(int socket) noexcept;

}  // namespace tutti::base
