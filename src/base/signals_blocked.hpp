// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

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

 private:
  sigset_t before_;
};

}  // namespace tutti::base
