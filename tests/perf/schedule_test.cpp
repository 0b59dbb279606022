// SPDX-License-Identifier: Apache-2.0
// The caller passes the time to the schedule, so these tests invent it.
#include "common/schedule.hpp"

#include <doctest/doctest.h>
#include <cstdint>
#include <set>
#include <vector>

namespace {

struct played {
  std::vector<perf::batch> warming, measured;
  double wall = 0;
  bool ended = false;
};

// Runs a schedule on a machine where a round takes `round_seconds`, and the work around a batch takes
// `between`.
played play(const perf::options& chosen, double round_seconds, double between = 0) {
  perf::schedule s(chosen);
  played result;
  for (int i = 0; i < 100'000; ++i) {
    const perf::batch b = s.next();
    if (b.rounds == 0) {
      result.ended = true;
      return result;
    }
    (b.measured != 0 ? result.measured : result.warming).push_back(b);
    const double seconds = static_cast<double>(b.rounds) * round_seconds;
    result.wall += seconds + between;
    s.finished(b, seconds, result.wall);
  }
  return result;
}

std::int64_t rounds_of(const std::vector<perf::batch>& batches) {
  std::int64_t sum = 0;
  for (const perf::batch& b : batches) sum += b.rounds;
  return sum;
}

}  // namespace

TEST_CASE("fast rounds are measured in batches so long that reading the clock costs nothing") {
  const played p = play({}, 1e-7);
  CHECK(p.ended);
  REQUIRE_FALSE(p.measured.empty());
  for (const perf::batch& b : p.measured) CHECK(b.rounds == 10'000);
  CHECK(p.measured.size() > 200);
  CHECK(p.wall < 0.35);
}

TEST_CASE("the first batches have one round and are not measured") {
  const played p = play({}, 1e-6);
  REQUIRE(p.warming.size() > perf::schedule::checking_batches);
  for (int i = 0; i < perf::schedule::checking_batches; ++i)
    CHECK(p.warming[static_cast<std::size_t>(i)].rounds == 1);
}

TEST_CASE("every batch has its own contents") {
  const played p = play({}, 1e-5);
  std::set<std::uint64_t> seeds;
  for (const auto* batches : {&p.warming, &p.measured})
    for (const perf::batch& b : *batches) seeds.insert(b.seed);
  CHECK(seeds.size() == p.warming.size() + p.measured.size());
}

TEST_CASE("long rounds are measured one by one, at least a few times") {
  const played p = play({}, 0.05);
  CHECK(p.ended);
  CHECK(p.measured.size() == perf::schedule::fewest_measured_batches);
  for (const perf::batch& b : p.measured) CHECK(b.rounds == 1);
}

TEST_CASE("very long rounds end after four times the requested time") {
  const played p = play({}, 0.4);
  CHECK(p.measured.size() == 3);
}

TEST_CASE("filling and checking count as time, so that every size ends") {
  const played p = play({}, 1e-3, 0.02);
  CHECK(p.measured.size() <= 13);
}

TEST_CASE("iterations are exact") {
  perf::options chosen;
  for (const std::int64_t wanted : {1, 9, 10, 95, 12'345}) {
    CAPTURE(wanted);
    chosen.iterations = wanted;
    const played p = play(chosen, 1e-7);
    CHECK(p.ended);
    CHECK(rounds_of(p.measured) == wanted);
  }
}

TEST_CASE("a warm-up of given rounds is exact, after the checking") {
  perf::options chosen;
  chosen.iterations = 10;
  chosen.warmup = 100;
  const played p = play(chosen, 1e-7);
  CHECK(rounds_of(p.warming) == perf::schedule::checking_batches + 100);
  chosen.warmup = 0;
  CHECK(rounds_of(play(chosen, 1e-7).warming) == perf::schedule::checking_batches + 1);
}

TEST_CASE("a stall in the warm-up does not shorten the batches") {
  perf::schedule s(perf::options{});
  double wall = 0;
  bool stalled = false;
  for (int i = 0; i < 100'000; ++i) {
    const perf::batch b = s.next();
    if (b.measured != 0) {
      CHECK(b.rounds == 10'000);
      return;
    }
    double seconds = static_cast<double>(b.rounds) * 1e-7;
    if (b.rounds == 16 && !stalled) {
      stalled = true;
      seconds += 4e-3;
    }
    wall += seconds;
    s.finished(b, seconds, wall);
  }
  FAIL("never measured");
}
