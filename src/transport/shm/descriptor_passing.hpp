// SPDX-License-Identifier: Apache-2.0
// Descriptors over an AF_UNIX socket (SCM_RIGHTS).
#pragma once

#include "base/unique_fd.hpp"

#include <array>
#include <optional>

namespace tutti::transport::shm {

// Sends two descriptors with one byte. False when the socket would block or is broken.
bool send_descriptors(int socket, int first, int second) noexcept;
// Receives what send_descriptors sent; empty when nothing is there yet. Throws tutti::error (peer_failed, protocol).
std::optional<std::array<base::unique_fd, 2>> receive_descriptors(int socket);
// Whether the process at the other end runs as our user (or as root).
bool same_user(int socket) noexcept;

}  // namespace tutti::transport::shm
