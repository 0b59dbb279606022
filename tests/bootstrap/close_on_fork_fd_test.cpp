// SPDX-License-Identifier: Apache-2.0
#include "base/unique_fd.hpp"
#include "bootstrap/store_file.hpp"
#include "support/child.hpp"
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

using tutti::bootstrap::close_on_fork_fd;
using tutti::test::child;

TEST_CASE("after a fork only the parent has the descriptor") {
  const tutti::test::scratch_directory scratch;
  const std::string path = scratch.path() / "file";
  const close_on_fork_fd one(path.c_str(), O_RDWR | O_CREAT, 0600), two(path.c_str(), O_RDWR, 0600);
  REQUIRE(one);
  REQUIRE(two);
  const int number = one.get();
  child forked([&](const auto&) {
    const bool closed = ::fcntl(number, F_GETFD) == -1 && errno == EBADF;
    return closed && one.get() == -1 && !two ? 0 : 1;
  });
  CHECK(forked.end() == 0);
  CHECK(::fcntl(one.get(), F_GETFD) == FD_CLOEXEC);
}

TEST_CASE("a failed open returns -1 and sets errno") {
  errno = 0;
  const close_on_fork_fd none("/proc/no such file", O_RDONLY, 0);
  CHECK(errno == ENOENT);
  CHECK(none.get() == -1);
}

TEST_CASE("a fork beside threads that open and close descriptors leaves none in the child") {
  const tutti::test::scratch_directory scratch;
  const std::string path = scratch.write("file", "");
  const tutti::base::unique_fd before(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::atomic<bool> ends = false;
  std::thread busy([&] {
    while (!ends) const close_on_fork_fd fd(path.c_str(), O_RDONLY, 0);
  });
  for (int round = 0; round < 100; ++round) {
    child forked([&](const auto&) {
      // The lowest free number does not depend on the other thread's descriptor.
      const int next = ::dup(before.get());
      for (int fd = 0; fd < next; ++fd) {
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        char target[512];
        const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
        if (length > 0 && std::string(target, static_cast<std::size_t>(length)) == path) return 1;
      }
      return 0;
    });
    CHECK(forked.end() == 0);
  }
  ends = true;
  busy.join();
}
