// SPDX-License-Identifier: Apache-2.0
// close_on_fork_fd: owns a file descriptor that the child of a fork does not keep.
#pragma once

#include <sys/types.h>

namespace tutti::base {

// A child of fork() shares the open file descriptions of its parent, and with them their locks, which then
// last until the child ends. So the child closes these descriptors before fork() returns there. (Linux has no
// O_CLOFORK.) Children made by clone() without fork(), by vfork() and by posix_spawn() keep them until exec.
class close_on_fork_fd {
 public:
  // Like open(2) with O_CLOEXEC; on failure get() is -1 and errno says why.
  close_on_fork_fd(const char* path, int flags, mode_t mode);
  close_on_fork_fd(const close_on_fork_fd&) = delete;
  close_on_fork_fd& operator=(const close_on_fork_fd&) = delete;
  ~close_on_fork_fd();

  int get() const noexcept { return fd_; }  // -1 in a forked child
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  struct all;

  int fd_ = -1;
};

}  // namespace tutti::base
