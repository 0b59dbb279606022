// SPDX-License-Identifier: Apache-2.0
// barrier: no rank leaves before all have entered.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <atomic>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr int rounds = 200;

// Ranks are threads here, so that each sees the progress of the others without a message.
task<> nobody_leaves_early(communicator world, std::atomic<int>* arrived) {
  for (int round = 1; round <= rounds; ++round) {
    arrived->fetch_add(1, std::memory_order_relaxed);
    co_await world.barrier();
    TUTTI_EXPECT(arrived->load(std::memory_order_relaxed) >= round * world.size());
  }
}

task<> one_comes_late(communicator world, std::atomic<bool>* here) {
  for (int late = 0; late < world.size(); ++late) {
    if (world.rank() == late) {
      for (int turns = 0; turns < 50; ++turns) {  // some turns of the loop
        co_await world.send(turns, late, 1);
        int self = 0;
        co_await world.recv(self, late, 1);
      }
      here[late].store(true, std::memory_order_relaxed);
    }
    co_await world.barrier();
    TUTTI_EXPECT(here[late].load(std::memory_order_relaxed));
  }
}

}  // namespace

TEST_CASE("barrier: no rank leaves before all have entered") {
  for (const std::string& transport : transports) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      CAPTURE(transport);
      CAPTURE(ranks);
      std::atomic<int> arrived = 0;
      CHECK_NOTHROW(run_local(ranks, over(transport), [&arrived](communicator world) {
        return nobody_leaves_early(std::move(world), &arrived);
      }));
      CHECK(arrived == ranks * rounds);
      std::atomic<bool> here[8] = {};
      CHECK_NOTHROW(run_local(ranks, over(transport), [&here](communicator world) {
        return one_comes_late(std::move(world), here);
      }));
    }
  }
}
