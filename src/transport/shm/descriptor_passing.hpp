// SPDX-License-Identifier: Apache-2.0
// Passes descriptors over an AF_UNIX socket (SCM_RIGHTS).
#pragma once

#include "base/unique_fd.hpp"

#include <array>
#include <cstdint>
#include <optional>

namespace tutti::transport::shm {

// Sends two descriptors with one byte. Returns false if the socket would block or is broken.
bool send_descriptors(int socket, int first, int second) noexcept;
// Receives what send_descriptors sent; empty if nothing has come yet. Throws tutti::error (peer_failed,
// protocol).
std::optional<std::array<base::unique_fd, 2>> receive_descriptors(int socket);

// A region of shared memory: its owner's number for it, and its size.
struct region_label {
  std::uint64_t region = 0;
  std::uint64_t bytes = 0;
};
// Sends the descriptor of a region. Returns false if the socket would block or is broken, or too many
// descriptors are in flight.
bool send_region(int socket, int fd, const region_label& label) noexcept;

enum class region_event { nothing, region, hung_up, nonsense };
// Receives what send_region sent. The descriptor is missing if this process may open no more.
region_event receive_region(int socket, region_label& label, base::unique_fd& fd) noexcept;

// Whether the process at the other end runs as this user (or as root).
bool same_user(int socket) noexcept;

}  // namespace tutti::transport::shm
