// SPDX-License-Identifier: Apache-2.0
#include "core/time_slice.hpp"

#include "support/run_task.hpp"
#include "support/skip.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <tutti/tutti.hpp>

using namespace tutti;

namespace {

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
