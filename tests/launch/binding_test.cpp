// SPDX-License-Identifier: Apache-2.0
#include "launch/binding.hpp"
#include "base/cores.hpp"

#include <doctest/doctest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "launch/options.hpp"
#include "launched.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

using namespace tutti;
using namespace tutti::launch;

namespace {

// A machine of 16 hardware threads: core c and c + 8 are one core, four cores share a cache, all cores of a cache and
// another one have their memory.
struct machine {
  machine() {
    for (int thread = 0; thread < 16; ++thread) {
      const int core = thread % 8, cache = core / 2, node = core / 4;
      const std::string cpu = "cpu/cpu" + std::to_string(thread) + "/";
      describe(cpu + "topology/thread_siblings", 0x101 << core);
      describe(cpu + "cache/index3/shared_cpu_map", 0x303 << 2 * cache);
      describe("node/node" + std::to_string(node) + "/cpumap", 0xf0f << 4 * node);
    }
  }
  void describe(const std::string& file, unsigned mask) const {
    const std::filesystem::path path = folder.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << std::hex << "00000000," << mask << '\n';
  }
  std::vector<rank_place> places(binding how, int ranks, const char* mask = "ffff") const {
    return places_of_ranks(how, ranks, mask, folder.path().string());
  }
  test::scratch_directory folder;
};

using cores = std::vector<int>;

}  // namespace

TEST_SUITE("launch/binding") {
  TEST_CASE("a core for each rank, with its threads, of those that the launcher may use") {
    const machine m;
    const auto all = m.places(binding::core, 8);
    for (int r = 0; r < 8; ++r) CHECK(all[static_cast<std::size_t>(r)].cores == cores{r, r + 8});
    CHECK(all[0].threads == 2);
    const auto some = m.places(binding::core, 2, "fc");
    CHECK(some[0].cores == cores{2});
    CHECK(some[1].cores == cores{3});
    CHECK(some[1].threads == 1);
    CHECK_THROWS_WITH_AS(m.places(binding::core, 9), doctest::Contains("9 ranks on 8 cores"), usage_error);
  }

  TEST_CASE("ranks are spread over caches and memory nodes in their order") {
    const machine m;
    const auto caches = m.places(binding::cache, 8);
    CHECK(caches[0].cores == cores{0, 1, 8, 9});
    CHECK(caches[1].cores == caches[0].cores);
    CHECK(caches[7].cores == cores{6, 7, 14, 15});
    CHECK(caches[7].threads == 2);
    const auto nodes = m.places(binding::numa, 3);
    CHECK(nodes[0].cores == cores{0, 1, 2, 3, 8, 9, 10, 11});
    CHECK(nodes[1].cores == nodes[0].cores);
    CHECK(nodes[2].cores == cores{4, 5, 6, 7, 12, 13, 14, 15});
    CHECK(nodes[0].threads == 4);
    CHECK(nodes[2].threads == 8);
    CHECK(m.places(binding::cache, 2, "33")[1].cores == cores{4, 5});
  }

  TEST_CASE("without binding, and where the kernel describes nothing") {
    const machine m;
    CHECK(m.places(binding::none, 4)[3].cores.empty());
    const test::scratch_directory nothing;
    const auto places = places_of_ranks(binding::cache, 3, "f", nothing.path().string());
    CHECK(places[2].cores == cores{2});  // each core counts as a group
  }

  TEST_CASE("a rank runs where it is bound, and knows its share of the cores") {
    const std::string mask = base::cpu_mask();
    if (base::cores_in(mask).size() < 2) TUTTI_SKIP("one core");
    const testing::ending end =
        testing::launch({"-n", "2", "--bind", "core", "--tag-output", "never", "--", "sh", "-c",
                         "echo \"$(grep Cpus_allowed_list /proc/self/status) threads\""},
                        {"OMP_NUM_THREADS="});
    CHECK(end.exit_code == 0);
    const auto places = places_of_ranks(binding::core, 2, mask);
    for (const rank_place& p : places)
      CHECK(end.output.find("Cpus_allowed_list:\t" + std::to_string(p.cores.front())) != end.output.npos);
    const testing::ending own =
        testing::launch({"-n", "2", "--tag-output", "never", "--", "sh", "-c", "echo $OMP_NUM_THREADS"},
                        {"OMP_NUM_THREADS=7"});
    CHECK(own.output == "7\n7\n");
  }
}
