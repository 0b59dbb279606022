// SPDX-License-Identifier: Apache-2.0
// How a process that is not our child has ended, from its connection.
#include "support/skip.hpp"
#include "transport/shm/peer_socket.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <optional>
#include <string>

using tutti::transport::shm::end_text;
using tutti::transport::shm::peer_process;

namespace {

// A process connects to this one and ends with `body`. Records what the kernel tells before and after the
// process has been waited for.
struct known {
  bool can_tell = false;
  std::optional<int> before, after;
};

known end_of(const std::function<void()>& body) {
  known k;
  const tutti::base::unique_fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof(sa_family_t);  // the kernel gives it a name
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  length = sizeof address;
  REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int to_us = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(to_us, reinterpret_cast<sockaddr*>(&address), length) != 0) ::_exit(99);
    body();
    ::_exit(98);
  }
  REQUIRE(child > 0);
  const tutti::base::unique_fd connection(::accept(listener.get(), nullptr, nullptr));
  char byte;
  CHECK(::read(connection.get(), &byte, 1) == 0);  // its end
  peer_process peer(connection.get());
  k.can_tell = peer.may_tell();
  k.before = peer.status();
  k.can_tell = k.can_tell && (peer.may_tell() || k.before);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  k.after = k.before ? k.before : peer.status();
  return k;
}

}  // namespace

TEST_CASE("peer process: its exit code or signal is known") {
  const known killed = end_of([] { ::kill(::getpid(), SIGKILL); });
  if (!killed.can_tell) TUTTI_SKIP("this kernel does not tell how others' children end (Linux 6.16 does)");
  CHECK_FALSE(killed.before);
  CHECK(end_text("rank 1", killed.after).starts_with("rank 1 died: it was killed by signal 9 (Killed);"));
  CHECK(
      end_text("rank 1", end_of([] { ::_exit(3); }).after).starts_with("rank 1 exited with code 3 without"));
}

TEST_CASE("peer process: nothing is reported for no process, and for this one") {
  peer_process none(-1);
  CHECK_FALSE(none.status());
  CHECK(!none.may_tell());
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const tutti::base::unique_fd one(ends[0]), other(ends[1]);
  peer_process own(one.get());
  CHECK_FALSE(own.status());
  CHECK(!own.may_tell());
}
