// SPDX-License-Identifier: Apache-2.0
// System calls per operation, counted by ptrace in a process of two ranks. Prints the table.
//
// Over shared memory a spinning rank calls only sched_yield, and a parked one is woken by one write. TCP
// needs its sends and receives. How often ranks park depends on the load of the machine. So the lowest of
// several measurements counts, and the limits are those of ranks that park every time.
#include "comm/steady_programs.hpp"
#include "gpu/steady_programs.hpp"
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr int rounds = 50;
constexpr int measurements = 3;

// A system call with no other use, which marks the calling thread's place in the program. 0: between
// programs.
void mark(long place) { ::syscall(SYS_getpgid, -1000 - place); }

// The programs on the host, then those on a device.
std::vector<const char*> names() {
  std::vector<const char*> all;
  for (const named_program& p : programs) all.push_back(p.name);
  for (const named_device_program& p : device_programs) all.push_back(p.name);
  return all;
}

template <class Place, class Programs>
task<> mark_each(communicator world, Place place, const Programs& of, std::size_t first) {
  for (const auto& p : of) {
    co_await p.body(place, 10);  // makes connections and fills pools
    for (int m = 0; m < measurements; ++m) {
      co_await world.barrier();
      mark(static_cast<long>(first * measurements) + m + 1);
      co_await p.body(place, rounds);
      mark(0);
    }
    ++first;
  }
}
task<> marked_programs(communicator world) {
  co_await mark_each(world, world, programs, 0);
  const device_rank here = co_await open_device_rank(world, emulated::open(world), gpu::open_options());
  co_await mark_each(world, here, device_programs, std::size(programs));
  co_await world.barrier();
}

struct counts {
  std::uint64_t calls = 0;
  std::uint64_t yields = 0;
  std::map<std::uint64_t, int> others;  // by number: calls that neither suspend a rank nor wake one

  int other_calls() const {
    int n = 0;
    for (const auto& [number, times] : others) n += times;
    return n;
  }
  std::string text_of_others() const {
    std::string text;
    for (const auto& [number, times] : others)
      text += " number " + std::to_string(number) + ": " + std::to_string(times) + " times";
    return text;
  }
};

bool parks_or_wakes(std::uint64_t number) {
  switch (number) {
    case SYS_clock_gettime:  // of a thread's processor time, after the loop was blocked for long
    case SYS_sched_yield:
    case SYS_read:   // of eventfds and timers
    case SYS_write:  // of doorbells
#ifdef SYS_epoll_wait  // not on ARM
    case SYS_epoll_wait:
#endif
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_epoll_ctl:
    case SYS_io_uring_enter:
    case SYS_timerfd_settime:
    case SYS_futex:
      return true;
    default:
      return false;
  }
}
struct tracing {
  bool permitted = true;
  bool done = false;
  std::vector<counts> at;  // by place, for both ranks together
};

// Runs the ranks in a child and counts the system calls of its threads at each place.
tracing trace(const std::string& transport) {
  tracing result;
  result.at.resize(names().size() * measurements + 1);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    try {
      run_local(2, over(transport), marked_programs);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  if (!WIFSTOPPED(state)) {
    result.permitted = false;
    return result;
  }
  const auto options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
  if (::ptrace(PTRACE_SETOPTIONS, child, nullptr, reinterpret_cast<void*>(options)) != 0) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &state, 0);
    result.permitted = false;
    return result;
  }
  ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  std::map<pid_t, std::size_t> place;
  for (;;) {
    const pid_t thread = ::waitpid(-1, &state, __WALL);
    if (thread < 0) {
      if (errno == EINTR) continue;
      break;
    }
    if (WIFEXITED(state) || WIFSIGNALED(state)) {
      if (thread != child) continue;
      result.done = WIFEXITED(state) && WEXITSTATUS(state) == 0;
      break;
    }
    int deliver = 0;
    if (WSTOPSIG(state) == (SIGTRAP | 0x80)) {
      __ptrace_syscall_info info{};
      const long got = ::ptrace(PTRACE_GET_SYSCALL_INFO, thread, reinterpret_cast<void*>(sizeof info), &info);
      if (got < 0) {
        result.permitted = false;
        ::kill(child, SIGKILL);
        ::waitpid(child, &state, 0);
        return result;
      }
      if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        if (info.entry.nr == SYS_getpgid) {
          place[thread] = static_cast<std::size_t>(-1000 - static_cast<int>(info.entry.args[0]));
        } else {
          counts& here = result.at[std::min(place[thread], result.at.size() - 1)];
          ++(info.entry.nr == SYS_sched_yield ? here.yields : here.calls);
          if (!parks_or_wakes(info.entry.nr)) ++here.others[info.entry.nr];
        }
      }
    } else if (WSTOPSIG(state) != SIGTRAP && WSTOPSIG(state) != SIGSTOP) {
      deliver = WSTOPSIG(state);
    }
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, reinterpret_cast<void*>(static_cast<long>(deliver)));
  }
  return result;
}

}  // namespace

TEST_CASE("the system calls of an operation stay within the limits of ranks that park") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  TUTTI_SKIP("the sanitizer's own system calls would be counted");
#endif
  std::printf("%-25s %14s %14s   (system calls of both ranks in one round; sched_yield apart)\n", "operation",
              "shm", "tcp");
  std::vector<tracing> traced;
  for (const std::string& transport : transports) {
    traced.push_back(trace(transport));
    if (!traced.back().permitted)
      TUTTI_SKIP("this machine does not permit ptrace, or has no PTRACE_GET_SYSCALL_INFO");
    REQUIRE(traced.back().done);
  }
  for (std::size_t p = 0; p < names().size(); ++p) {
    std::string line;
    for (std::size_t t = 0; t < traced.size(); ++t) {
      counts least{~std::uint64_t{0}, 0, {}};
      std::uint64_t least_others = ~std::uint64_t{0};  // the first round of measurements maps memory
      for (int m = 0; m < measurements; ++m) {
        const counts& one = traced[t].at[p * measurements + static_cast<std::size_t>(m) + 1];
        if (one.calls < least.calls) least = one;
        least_others = std::min<std::uint64_t>(least_others, one.other_calls());
      }
      const double calls = static_cast<double>(least.calls) / rounds;
      char text[64];
      std::snprintf(text, sizeof text, " %7.2f%+7.1f", calls, static_cast<double>(least.yields) / rounds);
      line += text;
      CAPTURE(std::string(names()[p]));
      CAPTURE(transports[t]);
      // An emulated device wakes its threads for each piece of work.
      if (p < std::size(programs)) CHECK(calls <= (transports[t] == "shm" ? 16 : 48));
      // Some come by time, such as the checks of slow peers; none by operation.
      CAPTURE(least.text_of_others());
      if (transports[t] == "shm") CHECK(least_others * 10 < rounds);
    }
    std::printf("%-25s%s\n", names()[p], line.c_str());
  }
}
