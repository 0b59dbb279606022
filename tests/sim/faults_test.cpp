// SPDX-License-Identifier: Apache-2.0
// Each kind of fault alone: which ranks notice it, when, and with which error text.
#include "sim/scenarios.hpp"
#include "support/instrumented.hpp"

#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

task<> sums(communicator world) { co_await sum_up(std::move(world), 5, 6); }

sim::options world_of(int ranks) {
  sim::options o;
  o.ranks = ranks;
  o.timeout = 1h;
  return o;
}

task<> reduce_for_long(communicator world) {
  for (int i = 0; i < 2000; ++i) {
    std::uint64_t one = 1;
    co_await world.all_reduce(one, sum);
    if (one != static_cast<std::uint64_t>(world.size())) throw std::runtime_error("a wrong sum");
    co_await sleep_for(1ms);
  }
}

// Rank 0 waits in several ways for rank 2, which has no connections.
task<> wait_unacquainted(communicator world, int way) {
  int never = 0;
  if (world.rank() != 0) {
    co_await world.recv(never, 0, 7);
  } else if (way == 0) {
    co_await world.recv(never, 2);
  } else if (way == 1) {
    co_await world.probe(2);
  } else if (way == 2) {
    co_await world.recv(never, any_source);
  } else {
    co_await world.probe(any_source);
  }
}

void expect_ended_by(const sim::report& r, int rank, errc why, const std::string& words) {
  const sim::rank_report& one = r.ranks[static_cast<std::size_t>(rank)];
  CHECK_MESSAGE(one.how == sim::ending::threw, r.text());
  CHECK_MESSAGE((one.reason == why || one.reason == errc::communicator_failed), r.text());
  CHECK_MESSAGE(one.text.find(words) != std::string::npos, r.text());
}

}  // namespace

TEST_CASE("simulator: a rank dies at every frame that it sends") {
  for (const int ranks : {2, 3, 4, 5}) {
    for (const int victim : {0, ranks - 1}) {
      bool dies = true;
      std::uint64_t frame = 1;
      for (; dies && frame < 500; frame += instrumented ? 5 : 1) {
        sim::options o = world_of(ranks);
        o.network.eager_limit = 256;  // both protocols
        o.faults.deaths.push_back({victim, sim::never, frame});
        const sim::report r = sim::run(o, sums);
        CAPTURE(frame);
        CHECK_NOTHROW(judge(o, r, "sums"));
        dies = r.ranks[static_cast<std::size_t>(victim)].how == sim::ending::killed;
        // A rank that has not finished by then soon knows the dead rank. (The last to leave lingers for 5 s.)
        for (const sim::rank_report& one : r.ranks) {
          if (one.how != sim::ending::threw) continue;
          CHECK_MESSAGE(one.text.find("rank " + std::to_string(victim) + " (host") != std::string::npos,
                        r.text());
          CHECK_MESSAGE(one.ended < 1s, r.text());
        }
      }
      CHECK(frame > 10);
      CHECK(frame < 500);
    }
  }
}

TEST_CASE("simulator: of several deaths of a rank the first to come counts, whatever their order") {
  const sim::death early{1, sim::never, 3}, late{1, sim::never, 20};
  for (const std::vector<sim::death>& deaths : {std::vector{early, late}, std::vector{late, early}}) {
    sim::options o = world_of(2);
    o.faults.deaths = deaths;
    const sim::report r = sim::run(o, reduce_for_long);
    CHECK_MESSAGE(r.ranks[1].how == sim::ending::killed, r.text());
    CHECK(r.ranks[1].frames == 3);
  }
}

TEST_CASE("simulator: a rank dies at a given time") {
  sim::options o = world_of(4);
  o.faults.deaths.push_back({2, 300ms, 0});
  const sim::report r = sim::run(o, reduce_for_long);
  CHECK(r.ranks[2].how == sim::ending::killed);
  for (const int survivor : {0, 1, 3}) {
    expect_ended_by(r, survivor, errc::peer_failed, "rank 2 (host sim2, pid 1002)");
    CHECK(r.ranks[static_cast<std::size_t>(survivor)].ended < 400ms);
  }
}

TEST_CASE("simulator: a rank that waits for a rank without connections notices its death") {
  for (int way = 0; way < 4; ++way) {
    // Before any rank connects to it, during that, and long after.
    for (const sim::duration at : {sim::duration(0us), sim::duration(20'030us), sim::duration(5s)}) {
      CAPTURE(way);
      CAPTURE(at.count());
      sim::options o = world_of(3);
      o.faults.deaths.push_back({2, at, 0});
      const sim::report r = sim::run(o, [way](communicator world) { return wait_unacquainted(world, way); });
      expect_ended_by(r, 0, errc::peer_failed, "rank 2 (host sim2, pid 1002)");
      CHECK_MESSAGE(r.ranks[0].ended < at + 100ms, r.text());
    }
  }
}

TEST_CASE("simulator: a connection breaks, by itself or by a wrong byte") {
  sim::options o = world_of(3);
  o.faults.disconnections.push_back({0, 1, 200ms, true});
  const sim::report broken = sim::run(o, reduce_for_long);
  CHECK_FALSE(broken.stuck());
  for (int rank = 0; rank < 3; ++rank)
    expect_ended_by(broken, rank, errc::peer_failed, "the connection to rank");

  sim::options wrong = world_of(2);
  wrong.faults.corruptions.push_back({1, 0, 20});
  const sim::report r = sim::run(wrong, reduce_for_long);
  CHECK_FALSE(r.stuck());
  // The rank that notices may end with its own error or with its peer's.
  CHECK_MESSAGE(r.ranks[0].text.find("bytes that are no frame") != std::string::npos, r.text());
  CHECK(r.ranks[1].how == sim::ending::threw);
}

TEST_CASE("simulator: a partition that heals has no effect, one that does not is noticed") {
  sim::options heals = world_of(4);
  heals.faults.partitions.push_back({{0, 3}, 100ms, 2s});
  const sim::report waited = sim::run(heals, reduce_for_long);
  CHECK_MESSAGE(waited.all_returned(), waited.text());
  CHECK(waited.time > 3900ms);

  sim::options stays = world_of(4);
  stays.faults.partitions.push_back({{0, 3}, 100ms, sim::never});
  const sim::report r = sim::run(stays, reduce_for_long);
  CHECK_FALSE(r.stuck());
  for (const sim::rank_report& one : r.ranks) {
    CHECK(one.how == sim::ending::threw);
    CHECK(one.ended > 3s);
    CHECK_MESSAGE(one.ended < 9s, r.text());
  }
}

TEST_CASE("simulator: a stalled rank does not count as dead, and different clocks are no failure") {
  sim::options o = world_of(4);
  o.faults.stalls.push_back({1, 50ms, 900ms});
  const sim::report slow = sim::run(o, reduce_for_long);
  CHECK_MESSAGE(slow.all_returned(), slow.text());

  sim::options skewed = world_of(4);
  skewed.faults.skews.push_back({1, 2h, 300});
  skewed.faults.skews.push_back({2, 0s, -300});
  skewed.timeout = 1s;
  const sim::report r = sim::run(skewed, reduce_for_long);
  CHECK_MESSAGE(r.all_returned(), r.text());
}

TEST_CASE("simulator: a stall may last for ever") {
  sim::options o = world_of(3);
  o.timeout = 10s;
  o.faults.stalls.push_back({1, 50ms, sim::never});
  for (const sim::duration limit : {sim::duration(24h), sim::never}) {
    o.limit = limit;
    const sim::report r = sim::run(o, reduce_for_long);
    CHECK_MESSAGE(r.ranks[1].how == sim::ending::stuck, r.text());
    expect_ended_by(r, 0, errc::timed_out, "rank 1");
    expect_ended_by(r, 2, errc::timed_out, "rank 1");
  }
}
