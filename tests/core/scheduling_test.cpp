// SPDX-License-Identifier: Apache-2.0
#include "core/scheduling.hpp"

#include "support/run_task.hpp"
#include "support/skip.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>

using namespace std::chrono_literals;
using namespace tutti;
using core::spin_policy;

namespace {

struct spin_variable {
  explicit spin_variable(const char* text) { ::setenv("TUTTI_SPIN_US", text, 1); }
  ~spin_variable() { ::unsetenv("TUTTI_SPIN_US"); }
};

// The slice of this thread in nanoseconds; 0: the kernel does not report it.
std::uint64_t slice() {
  struct {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } now{};
  return ::syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) == 0 ? now.runtime : 0;
}

struct slice_variable {
  explicit slice_variable(const char* text) { ::setenv("TUTTI_SLICE_US", text, 1); }
  ~slice_variable() { ::unsetenv("TUTTI_SLICE_US"); }
};

#define NEEDS_SLICES()                                                               \
  if (slice() == 0) {                                                                \
    TUTTI_SKIP("the kernel has no time slices for single threads (Linux 6.12 has)"); \
  }

task<> look(communicator, std::uint64_t* seen) {
  *seen = slice();
  co_return;
}

}  // namespace

TEST_CASE("ranks spin if each has a core, and yield if they outnumber cores") {
  ::unsetenv("TUTTI_SPIN_US");
  CHECK_FALSE(spin_policy::choose(1, 1).yields);
  CHECK_FALSE(spin_policy::choose(4, 4).yields);
  CHECK(spin_policy::choose(5, 4).yields);
  CHECK(spin_policy::choose(2, 1).yields);
  CHECK(spin_policy::choose(2, 1).yields_between_looks == 16);
  CHECK(spin_policy::choose(64, 16).yields_between_looks == 16);
  CHECK(spin_policy::choose(64, 4).yields_between_looks == 4);
  CHECK(spin_policy::choose(512, 2).yields_between_looks == 2);
  CHECK(spin_policy::choose(1, 1).budget == 50us);
}

TEST_CASE("TUTTI_SPIN_US is the budget, and an invalid value is an error that names it") {
  {
    const spin_variable set("7");
    CHECK(spin_policy::choose(1, 1).budget == 7us);
    CHECK(spin_policy::choose(9, 1).budget == 7us);
  }
  {
    const spin_variable set("0");
    CHECK(spin_policy::choose(1, 1).budget == 0us);
  }
  for (const char* text : {"-1", "fast", "1000000001"}) {
    const spin_variable set(text);
    const test::failure wrong = test::failure_of([] { spin_policy::choose(1, 1); });
    CHECK(wrong.code == errc::invalid_argument);
    CHECK(wrong.says("TUTTI_SPIN_US"));
  }
}

TEST_CASE("time slices are short while requested, and not for new threads") {
  NEEDS_SLICES();
  std::thread([] {
    const std::uint64_t usual = slice();
    for (int i = 0; i < 2; ++i) {
      {
        const core::short_time_slices here;
        CHECK(slice() == 100'000);
        std::uint64_t there = 0;
        std::thread([&there] { there = slice(); }).join();
        CHECK(there == usual);
      }
      CHECK(slice() == usual);
    }
  }).join();
}

TEST_CASE("TUTTI_SLICE_US sets the slice, 0 keeps it, and an invalid value is an error that names it") {
  NEEDS_SLICES();
  const std::uint64_t usual = slice();
  {
    const slice_variable set("200");
    const core::short_time_slices here;
    CHECK(slice() == 200'000);
  }
  {
    const slice_variable set("0");
    const core::short_time_slices here;
    CHECK(slice() == usual);
  }
  for (const char* text : {"-1", "short", "100001"}) {
    const slice_variable set(text);
    const test::failure wrong = test::failure_of([] { const core::short_time_slices here; });
    CHECK(wrong.code == errc::invalid_argument);
    CHECK(wrong.says("TUTTI_SLICE_US"));
  }
  CHECK(slice() == usual);
}

TEST_CASE("ranks have short time slices") {
  NEEDS_SLICES();
  std::uint64_t seen = 0;
  run_local(1, [&seen](communicator world) { return look(std::move(world), &seen); });
  CHECK(seen == 100'000);
}
