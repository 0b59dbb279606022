// SPDX-License-Identifier: Apache-2.0
#include "base/passed_descriptors.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

using namespace tutti;

TEST_CASE("passed descriptors: one comes with its bytes, as another descriptor of the same file") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  base::unique_fd one(ends[0]);
  const base::unique_fd other(ends[1]);
  CHECK(base::same_user(one.get()));
  std::array<std::byte, 2> room{};
  const base::passed_descriptors nothing = base::receive_descriptors(other.get(), room, MSG_DONTWAIT);
  CHECK(nothing.bytes == -1);
  CHECK(errno == EAGAIN);

  int pipe[2];
  REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
  const base::unique_fd out(pipe[0]);
  base::unique_fd in(pipe[1]);
  const int sent = in.get();
  const std::byte bytes[] = {std::byte{7}};
  CHECK(base::send_descriptors(one.get(), {&sent, 1}, bytes));
  const base::passed_descriptors got = base::receive_descriptors(other.get(), room, 0);
  CHECK(got.bytes == 1);
  CHECK(room[0] == std::byte{7});
  CHECK_FALSE(got.cut_off);
  REQUIRE(got.descriptors[0]);
  CHECK_FALSE(got.descriptors[1]);
  CHECK((::fcntl(got.descriptors[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
  in.reset();
  char c = 0;
  CHECK(::write(got.descriptors[0].get(), "x", 1) == 1);
  CHECK(::read(out.get(), &c, 1) == 1);
  CHECK(c == 'x');

  one.reset();
  CHECK(base::receive_descriptors(other.get(), room, 0).bytes == 0);
}
