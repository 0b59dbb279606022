// SPDX-License-Identifier: Apache-2.0
// run_local: ranks as threads of one process.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

task<> add_up(communicator world) {
  int x = world.rank() + 1;
  co_await world.all_reduce(x, sum);
  TUTTI_EXPECT(x == world.size() * (world.size() + 1) / 2);
}
task<int> with_a_code(communicator world) {
  co_await world.barrier();
  co_return world.rank();
}
task<> count_ranks(communicator world, std::atomic<int>* ranks) {
  ranks->fetch_or(1 << world.rank());
  co_return;
}
task<> throws_at_once(communicator world) {
  if (world.rank() == world.size() - 1) throw std::logic_error("at once");
  co_return;
}
task<> throws_something_else(communicator world) {
  co_await world.barrier();
  if (world.rank() == 0) throw 42;
}
// Captures by value live as long as the rank's coroutines.
task<> shared(communicator world, std::shared_ptr<int> value) {
  co_await world.barrier();
  TUTTI_EXPECT(*value == 5);
}
task<> handles_of_its_own(communicator world) {
  const communicator first = world;
  communicator second = world;
  world = communicator();
  int x = 1;
  co_await second.all_reduce(x, sum);
  TUTTI_EXPECT(x == first.size());
}

}  // namespace

TEST_CASE("run_local: worlds of different sizes, one after the other") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    CAPTURE(ranks);
    CHECK_NOTHROW(run_local(ranks, add_up));
    std::atomic<int> seen = 0;
    CHECK_NOTHROW(
        run_local(ranks, [&seen](communicator world) { return count_ranks(std::move(world), &seen); }));
    CHECK(seen == (1 << ranks) - 1);
  }
}

TEST_CASE("run_local: the forms of main") {
  CHECK_NOTHROW(run_local(2, with_a_code));
  CHECK_NOTHROW(run_local(2, handles_of_its_own));
  const auto value = std::make_shared<int>(5);
  CHECK_NOTHROW(run_local(3, [value](communicator world) { return shared(std::move(world), value); }));
  CHECK(value.use_count() == 1);
}

TEST_CASE("run_local: errors are rethrown with their type") {
  CHECK_THROWS_WITH_AS(run_local(3, throws_at_once), "at once", std::logic_error);
  CHECK_THROWS_AS(run_local(1, throws_something_else), int);
  CHECK_THROWS_AS(run_local(3, throws_something_else), int);
}

TEST_CASE("run_local: invalid options") {
  CHECK(failure_of([] { run_local(0, add_up); }).code == errc::invalid_argument);
  CHECK(failure_of([] { run_local(-3, add_up); }).code == errc::invalid_argument);
  const failure unknown = failure_of([] { run_local(2, over("carrier pigeon"), add_up); });
  CHECK(unknown.code == errc::invalid_argument);
  CAPTURE(unknown.text);
  CHECK(unknown.says("carrier pigeon"));
}

TEST_CASE("run_local: two worlds at the same time are independent") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    std::array<failure, 2> ends = {describe({}), describe({})};
    std::vector<std::thread> threads;
    for (failure& end : ends)
      threads.emplace_back([&end, &transport] {
        end = failure_of([&transport] {
          for (int i = 0; i < 5; ++i) run_local(2 + i % 2, over(transport), add_up);
        });
      });
    for (std::thread& t : threads) t.join();
    for (const failure& end : ends) CHECK(end.text == "");
  }
}
