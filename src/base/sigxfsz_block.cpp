// SPDX-License-Identifier: Apache-2.0
#include "base/sigxfsz_block.hpp"

#include <cerrno>
#include <ctime>

namespace tutti::base {
namespace {

sigset_t only_sigxfsz() noexcept {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGXFSZ);
  return signals;
}

}  // namespace

sigxfsz_block::sigxfsz_block() noexcept {
  const sigset_t blocked = only_sigxfsz();
  ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
  sigset_t pending;
  pending_before_ = ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGXFSZ) == 1;
}

sigxfsz_block::~sigxfsz_block() {
  const int code = errno;
  const sigset_t sent = only_sigxfsz();
  constexpr timespec at_once{};
  // A signal that was pending before is the program's.
  if (!pending_before_)
    while (::sigtimedwait(&sent, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  errno = code;
}

}  // namespace tutti::base
