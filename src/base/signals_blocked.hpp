// SPDX-License-Identifier: Apache-2.0
// Blocks signals of one thread for a time.
#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace tutti::base {

// Blocks all signals of this thread while it lives. A thread that is made meanwhile starts with them blocked:
// signals are for the program's own threads.
class signals_blocked {
 public:
  signals_blocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  signals_blocked(const signals_blocked&) = delete;
  signals_blocked& operator=(const signals_blocked&) = delete;
  ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  const sigset_t& before() const noexcept { return before_; }  // the mask that it restores

 private:
  sigset_t before_;
};

// Turns the limit of file sizes (ulimit -f) into an error: while it lives, a write, ftruncate or fallocate of this
// thread past the limit only fails with EFBIG. The SIGXFSZ that the kernel sends to the thread would end the
// process; it is blocked and taken.
// Other threads and the signal's disposition are unchanged. Preserves errno.
class sigxfsz_block {
 public:
  sigxfsz_block() noexcept {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &mask_before_);
    sigset_t pending;
    pending_before_ = ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGXFSZ) == 1;
  }
  sigxfsz_block(const sigxfsz_block&) = delete;
  sigxfsz_block& operator=(const sigxfsz_block&) = delete;
  ~sigxfsz_block() {
    const int code = errno;
    constexpr timespec at_once{};
    // A signal that was pending before is the program's.
    if (!pending_before_)
      while (::sigtimedwait(&signal_, nullptr, &at_once) < 0 && errno == EINTR) {
      }
    ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    errno = code;
  }

 private:
  sigset_t signal_;
  sigset_t mask_before_;
  bool pending_before_;
};

}  // namespace tutti::base
