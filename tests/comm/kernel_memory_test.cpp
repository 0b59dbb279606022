// SPDX-License-Identifier: Apache-2.0
// The kernel refuses memory: rings, locked pages, shared segments. A world works without it and prints the
// cure once, or ends with an error that has the cure.
#include "core/backend.hpp"
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr int well = 0, out_of_resources = 1, other = 2, cannot_refuse = 3;

// Makes this system call fail with `code` in this thread and those that it starts; mmap fails only for shared
// mappings.
bool refuse(unsigned call, int code) {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 3 * sizeof(__u64)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  if (call != SYS_mmap) steps[3] = BPF_STMT(BPF_LD | BPF_IMM, 0);  // whatever its arguments
  sock_fprog program{static_cast<unsigned short>(std::size(steps)), steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

task<> communicate(communicator world) {
  std::vector<double> sums(20'000, 1.0);
  co_await world.all_reduce(sums, tutti::sum);
  TUTTI_EXPECT(sums.front() == 2 && sums.back() == 2);
  shared_vector<int> mine(50'000, world.rank()), theirs(50'000);
  request sending = world.isend(mine, 1 - world.rank());
  co_await world.recv(theirs, 1 - world.rank());
  co_await sending;
  TUTTI_EXPECT(theirs.back() == 1 - world.rank());
}

struct outcome {
  int code = -1;
  std::string said;  // on standard error, including its error
};

// Runs a world of two ranks in a process that `prepare` has limited; cannot_refuse if it returns false.
outcome under(const std::function<bool()>& prepare, const std::string& transport) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    int code = other;
    if (!prepare()) ::_exit(cannot_refuse);
    try {
      run_local(2, over(transport), communicate);
      code = well;
    } catch (const error& e) {
      if (e.code() == errc::resources) code = out_of_resources;
      std::fprintf(stderr, "error: %s\n", e.what());
    } catch (const std::exception& e) {
      std::fprintf(stderr, "exception: %s\n", e.what());
    }
    ::_exit(code);
  }
  ::close(ends[1]);
  outcome o;
  char some[4096];
  for (ssize_t n; (n = ::read(ends[0], some, sizeof some)) > 0;)
    o.said.append(some, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return o;
}

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("without memory for an io_uring the world uses epoll and prints one line with the cure") {
  if (std::string why; !core::make_uring_backend(why)) TUTTI_SKIP(why);
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    const outcome o = under(
        [] {
          ::unsetenv("TUTTI_LOOP");
          return refuse(SYS_io_uring_setup, ENOMEM);
        },
        transport);
    CAPTURE(o.said);
    if (o.code == cannot_refuse) TUTTI_SKIP("this system lets nobody filter system calls");
    CHECK(o.code == well);
    CHECK(times(o.said, "uses epoll") == 1);
    CHECK(times(o.said, "ulimit -l") == 1);
    CHECK(times(o.said, "\n") == 1);
  }
}

TEST_CASE("without memory for a requested io_uring init fails with the cure") {
  if (std::string why; !core::make_uring_backend(why)) TUTTI_SKIP(why);
  const outcome o = under(
      [] {
        ::setenv("TUTTI_LOOP", "io_uring", 1);
        return refuse(SYS_io_uring_setup, ENOMEM);
      },
      "tcp");
  CAPTURE(o.said);
  if (o.code == cannot_refuse) TUTTI_SKIP("this system lets nobody filter system calls");
  CHECK(o.code == out_of_resources);
  CHECK(o.said.find("ulimit -l") != o.said.npos);
}

TEST_CASE("without locked memory everything works") {
  for (const rlim_t most : {rlim_t{0}, rlim_t{64 * 1024}}) {
    for (const std::string& transport : transports) {
      CAPTURE(most);
      CAPTURE(transport);
      const outcome o = under(
          [most] {
            ::unsetenv("TUTTI_LOOP");
            const rlimit limit{most, most};
            return ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
          },
          transport);
      CAPTURE(o.said);
      CHECK(o.code == well);
    }
  }
}

TEST_CASE("without shared memory init fails and names transports that work without it") {
  struct refusal {
    unsigned call;
    int code;
  };
  for (const refusal r :
       {refusal{SYS_memfd_create, ENOMEM}, refusal{SYS_ftruncate, ENOSPC}, refusal{SYS_mmap, ENOMEM}}) {
    CAPTURE(r.call);
    const auto prepare = [r] {
      ::setenv("TUTTI_LOOP", "epoll", 1);
      return refuse(r.call, r.code);
    };
    const outcome shm = under(prepare, "shm");
    CAPTURE(shm.said);
    if (shm.code == cannot_refuse) TUTTI_SKIP("this system lets nobody filter system calls");
    CHECK(shm.code == out_of_resources);
    CHECK(shm.said.find("TUTTI_TRANSPORTS=tcp") != shm.said.npos);
    const outcome tcp = under(prepare, "tcp");
    CAPTURE(tcp.said);
    CHECK(tcp.code == well);
  }
}
