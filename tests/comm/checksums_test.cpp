// SPDX-License-Identifier: Apache-2.0
// Checksums of payload do not change any result.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <tutti/counters.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

init_options checked(const std::string& transport) {
  init_options o = over(transport);
  o.checksums = true;
  return o;
}

task<> exchange(communicator world, std::size_t bytes) {
  const int other = 1 - world.rank();
  const std::vector<std::byte> mine = filled(bytes, static_cast<std::uint64_t>(world.rank()) * 1000 + bytes);
  std::vector<std::byte> theirs(bytes);
  request sending = world.isend(mine, other);
  co_await world.recv(theirs, other);
  co_await sending;
  TUTTI_EXPECT(theirs == filled(bytes, static_cast<std::uint64_t>(other) * 1000 + bytes));
}

}  // namespace

TEST_CASE("checksums: messages of all lengths, and collectives") {
  for (const std::string& transport : transports)
    run_local(4, checked(transport), [](communicator world) -> task<> {
      if (world.rank() < 2)
        for (const std::size_t bytes : {0UL, 1UL, 7UL, 4096UL, 65'536UL, 65'537UL, 300'000UL, 5'000'000UL})
          co_await exchange(world, bytes);
      for (const std::size_t count : {1UL, 1000UL, 1'000'000UL}) {
        std::vector<float> x(count, static_cast<float>(world.rank() + 1));
        co_await world.all_reduce(x, sum);
        TUTTI_EXPECT(x.front() == 10.0F && x.back() == 10.0F);
      }
      TUTTI_EXPECT(counters_of(world).corrupt_frames == 0);
    });
}
