// SPDX-License-Identifier: Apache-2.0
#include "base/close_on_fork_fd.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <vector>

namespace tutti::base {

// Descriptors are opened and closed under the mutex, so that a fork finds all of them in the list.
struct close_on_fork_fd::all {
  std::mutex mutex;
  std::vector<close_on_fork_fd*> list;

  // Never destroyed: a process may fork while it ends.
  static all& of_process() {
    static all* const made = [] {
      ::pthread_atfork([] { of_process().mutex.lock(); }, [] { of_process().mutex.unlock(); },
                       [] {
                         for (close_on_fork_fd* const owner : of_process().list) {
                           if (owner->fd_ >= 0) ::close(owner->fd_);
                           owner->fd_ = -1;
                         }
                         of_process().mutex.unlock();
                       });
      return new all;
    }();
    return *made;
  }
};

close_on_fork_fd::close_on_fork_fd(const char* path, int flags, mode_t mode) {
  all& a = all::of_process();
  int code = 0;
  {
    const std::scoped_lock hold(a.mutex);
    a.list.push_back(this);
    fd_ = ::open(path, flags | O_CLOEXEC, mode);
    code = errno;
  }
  errno = code;
}

close_on_fork_fd::~close_on_fork_fd() {
  all& a = all::of_process();
  const std::scoped_lock hold(a.mutex);
  std::erase(a.list, this);
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace tutti::base
