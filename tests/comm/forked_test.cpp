// SPDX-License-Identifier: Apache-2.0
// Processes that ranks fork cannot harm the rank, and get an error.
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <tutti/background.hpp>

using namespace tutti;
using namespace tutti::test;

namespace {

// Returns the exit code; 128 + the signal; -1 if it was killed after the patience.
int end_of(pid_t child) {
  for (int i = 0; i < 30'000; ++i) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ::usleep(1000);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

task<> communicate(communicator world) {
  double sum = 1;
  co_await world.all_reduce(sum, tutti::sum);
  TUTTI_EXPECT(sum == world.size());
  std::vector<std::byte> there = filled(100'000, 7), back(there.size());
  if (world.rank() == 0) co_await world.send(there, 1);
  if (world.rank() == 1) {
    co_await world.recv(back, 0);
    TUTTI_EXPECT(back == there);
  }
}

std::atomic<bool> other_waits{false}, forked{false};

// Forks on rank 0; returns 0 in the child. Rank 1 does nothing meanwhile: AddressSanitizer's allocator of g++
// 12 stays locked for ever in a child that is forked while another thread is in it.
task<pid_t> fork_in_quiet(communicator world) {
  if (world.rank() == 1) {
    other_waits = true;
    for (int i = 0; i < 30'000 && !forked; ++i) ::usleep(1000);
    TUTTI_EXPECT(forked.exchange(false));
    co_return -1;
  }
  for (int i = 0; i < 30'000 && !other_waits; ++i) co_await sleep_for(std::chrono::milliseconds(1));
  TUTTI_EXPECT(other_waits.exchange(false));
  const pid_t child = ::fork();
  if (child != 0) forked = true;
  TUTTI_EXPECT(child >= 0);
  co_return child;
}

task<> child_calls(communicator world) {
  co_await communicate(world);
  int ends[2] = {-1, -1};
  if (world.rank() == 0) TUTTI_EXPECT(::pipe(ends) == 0);
  const pid_t child = co_await fork_in_quiet(world);
  if (world.rank() == 0) {
    if (child == 0) {
      double sum = 1;
      const failure reduced = co_await failure_in(world.all_reduce(sum, tutti::sum));
      const failure sent = co_await failure_in(world.send(sum, 1));
      failure requested;
      try {
        request r = world.irecv(sum, 1);
        co_await r;
      } catch (...) {
        requested = describe(std::current_exception());
      }
      const bool right = reduced.code == errc::wrong_thread && sent.code == errc::wrong_thread &&
                         requested.code == errc::wrong_thread;
      const std::string said = (right ? "right " : "wrong ") + reduced.text;
      static_cast<void>(!::write(ends[1], said.data(), said.size()));
      ::_exit(0);
    }
    ::close(ends[1]);
    TUTTI_EXPECT(end_of(child) == 0);
    std::string said(4000, ' ');
    const ssize_t got = ::read(ends[0], said.data(), said.size());
    ::close(ends[0]);
    said.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    TUTTI_EXPECT(said.starts_with("right "));
    TUTTI_EXPECT(said.find("in a process that the rank has forked") != std::string::npos);
  }
  co_await communicate(world);
}

task<> child_comes_back(communicator world) {
  co_await communicate(world);
  const pid_t child = co_await fork_in_quiet(world);
  if (child == 0) co_return;
  if (world.rank() == 0) TUTTI_EXPECT(end_of(child) == 70);
  co_await communicate(world);
}

task<> computes(communicator) {
  const auto work = [] { return 6 * 7; };
  const int computed = co_await compute(work);
  TUTTI_EXPECT(computed == 42);
}

task<> computes_late(communicator world) {
  for (int i = 0; i < 20; ++i) {
    co_await sleep_for(std::chrono::milliseconds(1));
    co_await computes(world);
  }
}

task<> computes_and_exits(communicator) {
  const auto work = [] { std::exit(3); };
  co_await compute(work);
}

template <class Main>
pid_t child_that_runs(int ranks, Main main) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child != 0) return child;
  int code = 1;
  try {
    run_local(ranks, over("shm"), main);
    code = 0;
  } catch (...) {
  }
  ::_exit(code);
}

}  // namespace

TEST_SUITE("comm/forked") {
  TEST_CASE("a child that uses its parent's communicator gets an error, and the parent continues") {
    TUTTI_NEEDS_A_KERNEL("fork a process with threads");
    for (const std::string& transport : transports) run_local(2, over(transport), child_calls);
  }

  TEST_CASE("a child that returns to its parent's loop ends there, and the parent continues") {
    TUTTI_NEEDS_A_KERNEL("fork a process with threads");
    for (const std::string& transport : transports) run_local(2, over(transport), child_comes_back);
  }

  TEST_CASE("a child may have a world of its own") { CHECK(end_of(child_that_runs(2, communicate)) == 0); }

  TEST_CASE("a child computes in a pool of its own, and ends by exit() from anywhere") {
    if (instrumented)
      TUTTI_SKIP("under a sanitizer a child of several threads can start none, nor end by exit()");
    TUTTI_NEEDS_A_KERNEL("fork a process with threads");
    run_local(1, over("shm"), computes);
    CHECK(end_of(child_that_runs(2, computes)) == 0);
    CHECK(end_of(child_that_runs(1, computes_and_exits)) == 3);
    std::fflush(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      // Destroyed after whatever computing makes; the rank computes until then.
      static background rank = run_in_background(computes_late);
      std::exit(4);
    }
    CHECK(end_of(child) == 4);
  }
}
