// SPDX-License-Identifier: Apache-2.0
// Equal options give equal runs: every event at the same time, in the same order, with the same contents.
#include "coll/random/performer.hpp"
#include "sim/scenarios.hpp"

#include <doctest/doctest.h>
#include <set>

using namespace tutti;
using namespace tutti::test;

namespace {

sim::report run_one(std::uint64_t seed, bool fails) {
  sim::options o = small_world(seed);
  if (fails) o.faults = sim::faults::random(seed, o.ranks, std::chrono::milliseconds(3));
  const program p = program_for(o, 10, 3000);
  if (seed % 2 == 0) return sim::run(o, [&p](communicator world) { return perform(std::move(world), &p); });
  return sim::run(o, [seed](communicator world) { return exchange_letters(std::move(world), {seed, 10}); });
}

void expect_same(const sim::report& a, const sim::report& b) {
  CHECK(a.hash == b.hash);
  CHECK(a.events == b.events);
  CHECK(a.time == b.time);
  CHECK(a.frames == b.frames);
  CHECK(a.text() == b.text());
}

}  // namespace

TEST_CASE("simulator: a seed determines the run, with and without faults") {
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const sim::report first = run_one(seed, seed % 4 >= 2);
    // Other activity in the process has no effect.
    const std::vector<std::vector<char>> somewhere_else(seed % 7, std::vector<char>(10'000 * seed));
    expect_same(first, run_one(seed, seed % 4 >= 2));
    hashes.insert(first.hash);
  }
  CHECK(hashes.size() == 40);
}

TEST_CASE("simulator: a different latency, order or content is a different run") {
  sim::options o = small_world(3);
  o.noise = {};
  const auto letters = [](std::uint64_t seed) {
    return [seed](communicator world) { return exchange_letters(std::move(world), {seed, 5}); };
  };
  const std::uint64_t as_it_is = sim::run(o, letters(1)).hash;
  CHECK(sim::run(o, letters(1)).hash == as_it_is);
  CHECK(sim::run(o, letters(2)).hash != as_it_is);
  o.network.latency += sim::duration(1);
  CHECK(sim::run(o, letters(1)).hash != as_it_is);
}
