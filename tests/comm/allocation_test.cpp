// SPDX-License-Identifier: Apache-2.0
// Nothing is allocated in steady state. A program of its own: it replaces operator new and delete.
#include "comm/steady_programs.hpp"
#include "support/local_world.hpp"
#include "support/operator_new.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

constinit thread_local std::uint64_t allocations = 0;  // of this thread, since it began

}  // namespace

void* tutti::test::memory_for(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  return plain_memory(bytes, alignment);
}
bool tutti::test::refuses_aligned_alloc() noexcept {
  ++allocations;
  return false;
}

using namespace tutti;
using namespace tutti::test;
namespace asio = boost::asio;

namespace {

// Pools and lists grow to what the ranks' pace makes them hold at once, which may be in any round, but not in
// every one: of several measurements, one without an allocation tells.
constexpr int rounds = 300;
constexpr int measurements = 6;

void expect_none(const char* what, std::uint64_t fewest) {
  if (fewest != 0)
    throw std::runtime_error(std::string(what) + ": at least " + std::to_string(fewest) + " allocations in " +
                             std::to_string(rounds) + " rounds");
}

task<> in_tasks(communicator world) {
  for (const named_program& p : programs) {
    std::uint64_t fewest = ~std::uint64_t{0};
    for (int i = 0; i < measurements; ++i) {
      co_await world.barrier();
      const std::uint64_t before = allocations;
      co_await p.body(world, rounds);
      fewest = std::min(fewest, allocations - before);
    }
    expect_none(p.name, fewest);
  }
}

task<> of_prepared(communicator world) {
  const int other = 1 - world.rank();
  int most = 0, out = 0, in = 0;
  const auto reducing = co_await prepare(world.all_reduce(most, tutti::max));
  const auto sending = co_await prepare(world.send(out, other));
  const auto receiving = co_await prepare(world.recv(in, other));
  std::uint64_t fewest = ~std::uint64_t{0};
  for (int m = 0; m < measurements; ++m) {
    co_await world.barrier();
    const std::uint64_t before = allocations;
    for (int i = 0; i < rounds; ++i) {
      most = i + world.rank();
      co_await reducing();
      TUTTI_EXPECT(most == i + 1);
      out = i;
      request running = start(sending());
      co_await receiving();
      co_await running;
      TUTTI_EXPECT(in == i);
    }
    fewest = std::min(fewest, allocations - before);
  }
  expect_none("prepared operations", fewest);
}

// ---- in Asio's coroutines ----

// In one coroutine: the frame of another would be Asio's to allocate.
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
  expect_none("co_await in boost::asio::awaitable", fewest);
}
task<> in_asio(communicator world) {
  co_await asio::co_spawn(world.get_executor(), awaits_directly(world), asio::deferred);
}

}  // namespace

TEST_CASE("the counters count") {
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
    CHECK_NOTHROW(run_local(2, over(transport), of_prepared));
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
