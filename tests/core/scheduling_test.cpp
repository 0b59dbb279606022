// SPDX-License-Identifier: Apache-2.0
#include "core/scheduling.hpp"

#include "support/run_task.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

using namespace std::chrono_literals;
using namespace tutti;
using core::spin_policy;

namespace {

struct spin_variable {
  explicit spin_variable(const char* text) { ::setenv("TUTTI_SPIN_US", text, 1); }
  ~spin_variable() { ::unsetenv("TUTTI_SPIN_US"); }
};

using masks = std::vector<std::string>;

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

TEST_CASE("cores shared by several processes are counted once") {
  const int here = core::usable_cores();
  CHECK(here >= 1);
  // The limit of the quota, so that the numbers below hold on any machine.
  const auto at_most = [quota = core::usable_cores(masks{std::string(64, 'f')})](int n) {
    return std::min(n, quota);
  };
  CHECK(core::usable_cores(masks{"1"}) == at_most(1));
  CHECK(core::usable_cores(masks{"3", "3"}) == at_most(2));
  CHECK(core::usable_cores(masks{"1", "2", "4"}) == at_most(3));
  CHECK(core::usable_cores(masks{"f0", "f"}) == at_most(8));
  CHECK(core::usable_cores(masks{"100000000000000000", "1"}) == at_most(2));
  // Without information: as for this process alone.
  CHECK(core::usable_cores(masks{}) == here);
  CHECK(core::usable_cores(masks{"", ""}) == here);
}

TEST_CASE("the mask is the affinity of this thread") {
  std::string mask;
  int cores = 0;
  int pinned_to = -1;
  std::thread([&] {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    for (int core = 0; core < CPU_SETSIZE && pinned_to < 0; ++core)
      if (CPU_ISSET(static_cast<std::size_t>(core), &allowed)) pinned_to = core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(pinned_to), &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) {
      pinned_to = -1;
      return;
    }
    mask = core::cpu_mask();
    cores = core::usable_cores();
  }).join();
  if (pinned_to < 0) TUTTI_SKIP("this process may not set its affinity");
  CHECK(mask ==
        std::string(1, "1248"[pinned_to % 4]) + std::string(static_cast<std::size_t>(pinned_to / 4), '0'));
  CHECK(cores == 1);
  CHECK(core::usable_cores(masks{core::cpu_mask()}) == core::usable_cores());
}

TEST_CASE("cores share a cache if the kernel says so of all of them") {
  const test::scratch_directory folder;
  const auto describe = [&](int core, const char* sharing) {
    const auto cache = folder.path() / ("cpu" + std::to_string(core)) / "cache" / "index3";
    std::filesystem::create_directories(cache);
    std::ofstream(cache / "shared_cpu_map") << sharing << '\n';
  };
  const auto cache_of = [&](const char* mask) { return core::cache_of(mask, folder.path().string()); };
  for (int core = 0; core < 4; ++core) describe(core, "00000000,0000000f");
  for (int core = 36; core < 40; ++core) describe(core, "000000f0,00000000");
  CHECK(cache_of("1") == "0");
  CHECK(cache_of("c") == "0");
  CHECK(cache_of("1000000000") == "36");
  CHECK(cache_of("f000000000") == "36");
  CHECK(cache_of("8000000008").empty());  // two caches
  CHECK(cache_of("10").empty());          // not described
  CHECK(cache_of("").empty());
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
