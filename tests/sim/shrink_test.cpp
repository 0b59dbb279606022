// SPDX-License-Identifier: Apache-2.0
// Ranks die at every step of the agreement on the remaining ranks, including the gathering rank. Ranks may
// also drop the communicator that was agreed on.
#include "sim/scenarios.hpp"
#include "sim/survivors.hpp"
#include "support/instrumented.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cstdlib>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t stride = instrumented ? 5 : 1;

sim::options world_of(int ranks) {
  sim::options o;
  o.ranks = ranks;
  o.timeout = 1h;
  return o;
}

std::uint64_t frames_of(const sim::report& r, int rank) {
  return r.ranks[static_cast<std::size_t>(rank)].frames;
}

// `victims` die, the first at frame `frame`, and each further one at every frame that it sends after that.
void die_one_after_the_other(const sim::options& so_far, const survival& plan, std::vector<int> victims) {
  const sim::report r = run_survival(so_far, plan, true);
  if (victims.empty()) return;
  const int next = victims.front();
  victims.erase(victims.begin());
  for (std::uint64_t frame = 1; frame <= frames_of(r, next); frame += stride) {
    sim::options o = so_far;
    o.faults.deaths.push_back({next, sim::never, frame});
    CAPTURE(o.faults.text());
    CHECK_NOTHROW(die_one_after_the_other(o, plan, victims));
  }
}

task<bool> sums_well(communicator c) {
  int ranks = 1;
  const auto r = co_await as_result(c.all_reduce(ranks, sum));
  co_return !r.error && ranks == c.size();
}

// Rank 1 drops its shrink() after a while, and stays. `counted_on`: too late, the others expect it.
task<> one_drops_it(communicator world, std::chrono::nanoseconds after, bool* counted_on) {
  if (world.rank() == 1) {
    bool made = false;
    {
      auto dropped = start(world.shrink());
      co_await sleep_for(after);
      made = dropped.done();
    }
    if (!made) co_await sleep_for(1min);
    co_return;
  }
  const auto begin = now();
  communicator left = std::move(world);
  bool well = false;
  for (int round = 0; !well; ++round) {
    const auto next = co_await as_result(left.shrink());
    if (next.error) {
      TUTTI_EXPECT(round == 0);
      TUTTI_EXPECT((next.error == errc::cancelled));
      continue;
    }
    *counted_on = *counted_on || (round == 0 && next.value.size() == 3);
    left = next.value;
    well = co_await sums_well(left);
  }
  TUTTI_EXPECT(left.size() == 2);
  // Otherwise the reason is that its program no longer calls shrink().
  TUTTI_EXPECT((!*counted_on || now() - begin < 1s));
}

}  // namespace

TEST_CASE("simulator: a rank dies at every step of sums and of shrink") {
  for (const int ranks : {2, 3, 5}) {
    for (const int victim : {0, 1, ranks - 1}) {
      CAPTURE(ranks);
      CAPTURE(victim);
      survival plan;
      plan.sums = 3;
      plan.count = 100;
      sim::options o = world_of(ranks);
      o.network.eager_limit = 256;
      die_one_after_the_other(o, plan, {victim});
      plan.meets = plan.asks = true;
      plan.seed = static_cast<std::uint64_t>(victim);
      die_one_after_the_other(o, plan, {victim});
    }
  }
}

TEST_CASE("simulator: another rank dies during the agreement, even the gathering one") {
  survival plan;
  plan.sums = 1;
  for (const auto& victims : {std::vector<int>{0, 1}, {1, 0}, {3, 0}, {0, 3}})
    die_one_after_the_other(world_of(4), plan, victims);
}

// More ranks than tell each other of a failure directly.
TEST_CASE("simulator: of many ranks some die, mostly while a failure is propagated") {
  for (std::uint64_t seed = 1; seed <= (instrumented ? 1 : 4); ++seed) {
    CAPTURE(seed);
    sim::options o = small_world(seed);
    test::random_numbers numbers(seed);
    o.ranks = 65 + static_cast<int>(numbers.below(8));
    survival plan;
    plan.seed = seed;
    plan.sums = 1;
    for (std::uint64_t n = 1 + numbers.below(4); n > 0; --n) {
      sim::death d;
      d.rank = static_cast<int>(numbers.below(static_cast<std::uint64_t>(o.ranks)));
      d.frames = 1 + numbers.below(numbers.one_in(2) ? 20 : 100);
      o.faults.deaths.push_back(d);
    }
    CHECK_NOTHROW(run_survival(o, plan, true));
  }
}

// A rank whose way to the first member has ended finds another, although nobody has died.
TEST_CASE("simulator: links of eight to sixteen ranks break, some die, cancel shrink or drop it") {
  for (std::uint64_t seed = 1; seed <= (instrumented ? 20 : 200); ++seed) {
    CAPTURE(seed);
    sim::options o = small_world(seed);
    o.timeout = 1h;
    test::random_numbers numbers(seed * 17 + 3);
    o.ranks = 8 + static_cast<int>(numbers.below(9));
    const auto any = [&] { return static_cast<int>(numbers.below(static_cast<std::uint64_t>(o.ranks))); };
    const auto moment = [&] { return std::chrono::microseconds(numbers.below(1500)); };
    survival plan;
    plan.seed = seed;
    plan.sums = 2;
    plan.meets = numbers.one_in(2);
    plan.gives_up = numbers.one_in(2);
    for (std::uint64_t n = 1 + numbers.below(3); n > 0; --n) {
      const int a = any(), b = any();
      if (a != b) o.faults.disconnections.push_back({a, b, moment(), numbers.one_in(2)});
    }
    for (std::uint64_t n = numbers.below(3); n > 0; --n) o.faults.deaths.push_back({any(), moment()});
    CHECK_NOTHROW(run_survival(o, plan, false));
  }
}

// Those in the middle of the tree of an agreement, too.
TEST_CASE("simulator: of eight to forty ranks some die, cancel shrink or drop it, at any time") {
  const char* const more = std::getenv("TUTTI_SIM_SCHEDULES");
  const std::uint64_t schedules = more != nullptr ? std::strtoull(more, nullptr, 10)
                                  : instrumented  ? 10
                                                  : 100;
  for (std::uint64_t seed = 1; seed <= schedules; ++seed) {
    CAPTURE(seed);
    sim::options o = small_world(seed);
    test::random_numbers numbers(seed * 13 + 1);
    o.ranks = 8 + static_cast<int>(numbers.below(33));
    survival plan;
    plan.seed = seed;
    plan.sums = 2;
    plan.asks = numbers.one_in(2) && o.ranks < 13;  // of many one would always ask
    plan.gives_up = numbers.one_in(2);
    plan.meets = numbers.one_in(3);
    const auto all = static_cast<std::uint64_t>(o.ranks);
    for (std::uint64_t n = numbers.below(numbers.one_in(3) ? all : 4); n > 0; --n) {
      sim::death d;
      d.rank = static_cast<int>(numbers.below(numbers.one_in(2) ? all : 8));
      if (numbers.one_in(4)) {
        d.at = std::chrono::microseconds(numbers.below(1500));
      } else {
        d.frames = 1 + numbers.below(numbers.one_in(2) ? 30 : 120);
      }
      o.faults.deaths.push_back(d);
    }
    CHECK_NOTHROW(run_survival(o, plan, true));
  }
}

TEST_CASE("simulator: ranks that cancel or drop shrink end it for all or for none") {
  for (std::uint64_t seed = 1; seed <= (instrumented ? 50 : 500); ++seed) {
    CAPTURE(seed);
    survival plan;
    plan.seed = seed;
    plan.asks = plan.gives_up = true;
    sim::options o = small_world(seed);
    CHECK_NOTHROW(run_survival(o, plan, true));
  }
}

TEST_CASE("simulator: a rank that drops the result of shrink is left out of the next") {
  int counted = 0;
  for (std::chrono::nanoseconds after = 0us; after < 300us; after += 2us) {
    CAPTURE(after.count());
    bool counted_on = false;
    const sim::report r = sim::run(
        world_of(3), [&](communicator world) { return one_drops_it(std::move(world), after, &counted_on); });
    CHECK_MESSAGE(r.all_returned(), r.text());
    if (counted_on) ++counted;
  }
  CHECK(counted > 0);
}
