// SPDX-License-Identifier: Apache-2.0
#include "base/unique_fd.hpp"

#include <fcntl.h>

#include <doctest/doctest.h>
#include <type_traits>
#include <utility>

using tutti::base::unique_fd;

namespace {

static_assert(!std::is_copy_constructible_v<unique_fd>);
static_assert(!std::is_convertible_v<int, unique_fd>);
static_assert(std::is_nothrow_move_constructible_v<unique_fd> &&
              std::is_nothrow_move_assignable_v<unique_fd>);

int new_descriptor() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

}  // namespace

TEST_CASE("unique_fd closes its descriptor exactly once") {
  int fd = -1;
  {
    const unique_fd owner(new_descriptor());
    fd = owner.get();
    CHECK(owner);
    CHECK(is_open(fd));
  }
  CHECK_FALSE(is_open(fd));
  const unique_fd none;
  CHECK_FALSE(none);
  CHECK(none.get() == -1);
}

TEST_CASE("moving a unique_fd transfers ownership") {
  unique_fd a(new_descriptor());
  const int fd = a.get();
  unique_fd b(std::move(a));
  CHECK(b.get() == fd);
  CHECK(a.get() == -1);
  unique_fd c(new_descriptor());
  const int replaced = c.get();
  c = std::move(b);
  CHECK(c.get() == fd);
  CHECK_FALSE(is_open(replaced));
  CHECK(is_open(fd));
  unique_fd& same = c;
  c = std::move(same);
  CHECK(c.get() == fd);
  CHECK(is_open(fd));
}

TEST_CASE("unique_fd: release gives up ownership, reset replaces the descriptor") {
  unique_fd a(new_descriptor());
  const int fd = a.release();
  CHECK_FALSE(a);
  CHECK(is_open(fd));
  a.reset(fd);
  a.reset(fd);  // the same descriptor: stays open
  CHECK(is_open(fd));
  a.reset();
  CHECK_FALSE(a);
  CHECK_FALSE(is_open(fd));
  a.reset();
}
