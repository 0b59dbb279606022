// SPDX-License-Identifier: Apache-2.0
// The AF_UNIX connection to a peer of this host: it passes descriptors (SCM_RIGHTS), and knows the process at its
// other end.
#pragma once

#include "base/unique_fd.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tutti::transport::shm {

// A region of shared memory: its owner's number for it, and its size.
struct region_label {
  std::uint64_t region = 0;
  std::uint64_t bytes = 0;
};
// Sends one or two descriptors with a label. Returns false if the socket would block or is broken (errno), or too
// many descriptors are in flight.
bool send_descriptors(int socket, std::span<const int> descriptors, const region_label& label = {}) noexcept;

// What has come of one send_descriptors().
struct passed {
  enum class outcome { nothing, all, hung_up, nonsense };
  outcome is = outcome::nothing;
  region_label label;
  // Missing if this process may open no more.
  std::array<base::unique_fd, 2> descriptors;
  bool cut_off = false;
};
passed receive_descriptors(int socket) noexcept;
// Receives two descriptors; empty if nothing has come yet. Throws tutti::error (peer_failed, resources, protocol).
std::optional<std::array<base::unique_fd, 2>> receive_pair(int socket);

// How the process at the other end of a connection has ended. From Linux 6.16 on the kernel tells that to
// processes other than the parent, too, once the parent has reaped it.
class peer_process {
 public:
  // `socket` was connected; its peer may already be gone.
  explicit peer_process(int socket) noexcept;
  // Its status, as from wait(); empty: not known, or not yet.
  std::optional<int> status() noexcept;
  // Whether the kernel may still tell.
  bool may_tell() const noexcept { return static_cast<bool>(pidfd_); }

 private:
  base::unique_fd pidfd_;
};

// "rank 1 died: it was killed by signal 9 (Killed); ...", by the status if it is known.
std::string end_text(const std::string& who, std::optional<int> status);

}  // namespace tutti::transport::shm
