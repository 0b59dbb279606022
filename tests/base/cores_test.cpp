// SPDX-License-Identifier: Apache-2.0
#include "base/cores.hpp"

#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

#include <sched.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;

namespace {

using masks = std::vector<std::string>;

}  // namespace

TEST_CASE("cores shared by several processes are counted once") {
  const int here = base::usable_cores();
  CHECK(here >= 1);
  // The limit of the quota, so that the numbers below hold on any machine.
  const auto at_most = [quota = base::usable_cores(masks{std::string(64, 'f')})](int n) {
    return std::min(n, quota);
  };
  CHECK(base::usable_cores(masks{"1"}) == at_most(1));
  CHECK(base::usable_cores(masks{"3", "3"}) == at_most(2));
  CHECK(base::usable_cores(masks{"1", "2", "4"}) == at_most(3));
  CHECK(base::usable_cores(masks{"f0", "f"}) == at_most(8));
  CHECK(base::usable_cores(masks{"100000000000000000", "1"}) == at_most(2));
  // Without information: as for this process alone.
  CHECK(base::usable_cores(masks{}) == here);
  CHECK(base::usable_cores(masks{"", ""}) == here);
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
    mask = base::cpu_mask();
    cores = base::usable_cores();
  }).join();
  if (pinned_to < 0) TUTTI_SKIP("this process may not set its affinity");
  CHECK(mask ==
        std::string(1, "1248"[pinned_to % 4]) + std::string(static_cast<std::size_t>(pinned_to / 4), '0'));
  CHECK(cores == 1);
  CHECK(base::usable_cores(masks{base::cpu_mask()}) == base::usable_cores());
}

TEST_CASE("cores share a cache if the kernel says so of all of them") {
  const test::scratch_directory folder;
  const auto describe = [&](int core, const char* sharing) {
    const auto cache = folder.path() / ("cpu" + std::to_string(core)) / "cache" / "index3";
    std::filesystem::create_directories(cache);
    std::ofstream(cache / "shared_cpu_map") << sharing << '\n';
  };
  const auto cache_of = [&](const char* mask) { return base::cache_of(mask, folder.path().string()); };
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
