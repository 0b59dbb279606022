// SPDX-License-Identifier: Apache-2.0
// Memory of a rank for each member of its world and for each connection, without sockets. With
// TUTTI_TEST_LARGE=1 for 1,000 ranks, which takes minutes.
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <cstdlib>
#include <tutti/sim/simulation.hpp>

using namespace tutti;
using namespace tutti::test;

namespace {

const int ranks = std::getenv("TUTTI_TEST_LARGE") != nullptr ? 1000 : 200;

// Rank 0 with all others, or pairs: everything else is the same.
task<> meet(communicator world, bool all_with_one) {
  std::vector<std::byte> data(8);
  co_await world.barrier();
  const int me = world.rank();
  if (all_with_one) {
    for (int i = 1; me == 0 && i < world.size(); ++i) co_await world.recv(data, any_source);
    if (me != 0) co_await world.send(data, 0);
  } else {
    if (me % 2 == 0) co_await world.recv(data, (me + world.size() / 2 + 1) % world.size());
    if (me % 2 == 1) co_await world.send(data, (me + world.size() / 2 - 1) % world.size());
  }
  co_await world.barrier();
}

double bytes_of(bool all_with_one) {
  sim::options o;
  o.ranks = ranks;
  o.seed = 1;
  const sim::report r =
      sim::run(o, [all_with_one](communicator world) { return meet(std::move(world), all_with_one); });
  REQUIRE_MESSAGE(r.all_returned(), r.text());
  return static_cast<double>(r.bytes_per_rank) * ranks;
}

}  // namespace

TEST_CASE("footprint: many peers of one rank") {
  const double star = bytes_of(true), pairs = bytes_of(false);
  if (star == 0) TUTTI_SKIP("this heap does not tell what is in use");
  // Ends of connections: 2 (ranks - 1) in the star, `ranks` in the pairs.
  const double met = (star - pairs) / (ranks - 2), member = pairs / ranks / ranks;
  std::printf("%d ranks: %.0f bytes for each that a rank has met, %.0f for each member\n", ranks, met,
              member);
  CHECK(met < 16 * 1024);
  CHECK(member < 3 * 1024);
}
