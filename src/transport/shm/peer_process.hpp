// SPDX-License-Identifier: Apache-2.0
// How the process at the other end of a connection has ended: the kernel tells, from Linux 6.16 on, also to
// those that are not its parent, as soon as the parent has taken note.
#pragma once

#include "base/unique_fd.hpp"

#include <string>

namespace tutti::transport::shm {

class peer_process {
 public:
  // `socket`: AF_UNIX, connected once; its peer may be gone already.
  void read_pid(int socket) noexcept;
  // "was killed by signal 9 (Killed)", "exited with code 3"; empty: not known, or not yet.
  std::string end() noexcept;
  // The kernel may still tell.
  bool may_tell() const noexcept { return static_cast<bool>(pidfd_); }

 private:
  base::unique_fd pidfd_;
};

}  // namespace tutti::transport::shm
