// SPDX-License-Identifier: Apache-2.0
// How the process at the other end of a connection has ended. From Linux 6.16 on the kernel tells that to
// processes other than the parent, too, once the parent has reaped it.
#pragma once

#include "base/unique_fd.hpp"

#include <string>

namespace tutti::transport::shm {

class peer_process {
 public:
  // `socket` is AF_UNIX and was connected; its peer may already be gone.
  void read_pid(int socket) noexcept;
  // "was killed by signal 9 (Killed)", "exited with code 3"; empty: not known, or not yet.
  std::string end() noexcept;
  // Whether the kernel may still tell.
  bool may_tell() const noexcept { return static_cast<bool>(pidfd_); }

 private:
  base::unique_fd pidfd_;
};

}  // namespace tutti::transport::shm
