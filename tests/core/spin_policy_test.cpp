// SPDX-License-Identifier: Apache-2.0
#include "core/spin_policy.hpp"

#include "support/run_task.hpp"
#include "support/skip.hpp"

#include <sched.h>

#include <doctest/doctest.h>
#include <cstdlib>
#include <string>
#include <thread>
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
