// SPDX-License-Identifier: Apache-2.0
#include "base/signals_blocked.hpp"

#include "base/unique_fd.hpp"
#include "support/child.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <doctest/doctest.h>
#include <cerrno>
#include <csignal>

namespace {

constexpr rlim_t most_bytes = 4096;

tutti::base::unique_fd limited_file() {
  const rlimit limit{most_bytes, most_bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  return tutti::base::unique_fd(::memfd_create("limited", MFD_CLOEXEC));
}

bool grow(int fd) { return ::ftruncate(fd, 2 * most_bytes) == 0; }

bool is_blocked() {
  sigset_t now;
  return ::pthread_sigmask(SIG_SETMASK, nullptr, &now) == 0 && ::sigismember(&now, SIGXFSZ) == 1;
}
bool is_pending() {
  sigset_t now;
  return ::sigpending(&now) == 0 && ::sigismember(&now, SIGXFSZ) == 1;
}

}  // namespace

TEST_CASE("sigxfsz block: a write above RLIMIT_FSIZE is an error, and the signal is consumed") {
  tutti::test::child limited([](const auto&) {
    ::signal(SIGXFSZ, SIG_DFL);
    const auto file = limited_file();
    for (int i = 0; i < 2; ++i) {
      bool refused = false;
      {
        const tutti::base::sigxfsz_block here;
        refused = !grow(file.get());
      }
      if (!refused || errno != EFBIG || is_blocked() || is_pending()) return 1;
    }
    return 0;
  });
  CHECK(limited.end() == 0);
}

TEST_CASE("sigxfsz block: a signal that the program has blocked itself stays pending") {
  tutti::test::child limited([](const auto&) {
    sigset_t own;
    ::sigemptyset(&own);
    ::sigaddset(&own, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &own, nullptr);
    const auto file = limited_file();
    grow(file.get());
    if (!is_pending()) return 1;
    {
      const tutti::base::sigxfsz_block here;
      grow(file.get());
    }
    return is_pending() && is_blocked() ? 0 : 2;
  });
  CHECK(limited.end() == 0);
}

TEST_CASE("sigxfsz block: outside of a block the program gets the signal") {
  tutti::test::child limited([](const auto&) {
    ::signal(SIGXFSZ, SIG_DFL);
    const auto file = limited_file();
    {
      const tutti::base::sigxfsz_block here;
    }
    grow(file.get());
    return 0;
  });
  CHECK(limited.end() != 0);
}
