// SPDX-License-Identifier: Apache-2.0
// Steady state allocates nothing. An executable of its own: it replaces operator new and delete.
#include "comm/steady_programs.hpp"
#include "support/local_world.hpp"
#include "support/skip.hpp"
#include "support/steady_state.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <cstdint>
#include <vector>

using namespace tutti;
using namespace tutti::test;
namespace asio = boost::asio;

namespace {

constexpr int rounds = 300;

task<> in_tasks(communicator world) { co_await allocate_nothing(world, world, programs, rounds); }

// ---- in Asio's coroutines ----

// In one coroutine, because Asio would allocate the frame of another.
asio::awaitable<void> awaits_directly(communicator world) {
  std::uint64_t fewest = ~std::uint64_t{0};
  int x = 0;
  for (int m = 0; m < measurements; ++m) {
    const std::uint64_t before = allocations;
    for (int i = 0; i < rounds; ++i) {
      if (world.rank() == 0) {
        co_await world.send(i, 1);
        co_await world.recv(x, 1);
      } else {
        co_await world.recv(x, 0);
        co_await world.send(x, 0);
      }
      TUTTI_EXPECT(x == i);
      co_await world.barrier();
      int y = i + world.rank();
      co_await world.all_reduce(y, sum);
      TUTTI_EXPECT(y == 2 * i + 1);
    }
    fewest = std::min(fewest, allocations - before);
  }
  expect_none("co_await in boost::asio::awaitable", fewest, rounds);
}
task<> in_asio(communicator world) {
  co_await asio::co_spawn(world.get_executor(), awaits_directly(world), asio::deferred);
}

}  // namespace

TEST_CASE("the counters count allocations and frees") {
  const std::uint64_t before = allocations;
  const std::vector<int> one(100), other(100);
  CHECK(one.data() != other.data());
  CHECK(allocations - before >= 2);
}

TEST_CASE("operations, requests, tasks and joins allocate nothing in steady state") {
#ifdef TUTTI_TEST_ADDRESS_SANITIZER
  TUTTI_SKIP("AddressSanitizer: frames are not recycled, so that it sees their use after free");
#endif
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(2, over(transport), in_tasks));
  }
}

TEST_CASE("awaiting operations directly in Asio's coroutines allocates nothing in steady state") {
#ifdef TUTTI_TEST_ADDRESS_SANITIZER
  TUTTI_SKIP("AddressSanitizer: frames are not recycled, so that it sees their use after free");
#endif
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(2, over(transport), in_asio));
  }
}
