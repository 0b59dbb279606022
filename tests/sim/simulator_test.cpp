// SPDX-License-Identifier: Apache-2.0
// Programs in the simulator: their virtual time, their ends, and reports of those that hang.
#include "sim/scenarios.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cmath>
#include <stdexcept>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

sim::options world_of(int ranks) {
  sim::options o;
  o.ranks = ranks;
  return o;
}

task<> greet(communicator world) {
  int text = world.rank();
  if (world.rank() == 0) {
    co_await world.send(text, 1);
  } else {
    co_await world.recv(text, 0);
    TUTTI_EXPECT(text == 0);
  }
}

task<int> number_of(communicator world) {
  co_await world.barrier();
  co_return world.rank() + 10;
}

task<> sleep_through(communicator world) {
  const auto start = now();
  co_await sleep_for(world.rank() * 3h);
  TUTTI_EXPECT(now() - start == world.rank() * 3h);
  co_await world.barrier();
  TUTTI_EXPECT(now() - start >= 6h);
}

task<> time_out(communicator world) {
  if (world.rank() == 1) co_return;
  int x = 0;
  const auto start = now();
  const auto late = co_await as_result(with_timeout(world.recv(x, 1), 40min));
  TUTTI_EXPECT(late.error == errc::timed_out);
  TUTTI_EXPECT(now() - start == 40min);
}

task<> wait_both(communicator world) {
  int x = 0;
  co_await world.recv(x, 1 - world.rank(), 7);
}

task<> wait_at_channel(communicator world) {
  channel<int> never_sent(1);
  if (world.rank() == 1) co_await never_sent.receive();
}

task<> fail_on_one(communicator world) {
  if (world.rank() == 1) throw std::runtime_error("no more paper");
  co_await world.barrier();
}

task<> wait_for_asio(communicator world) {
  boost::asio::steady_timer timer(world.get_executor(), 20ms);
  co_await timer.async_wait(boost::asio::deferred);
  co_await world.barrier();
}

task<> compute_something(communicator world) {
  const int mine = co_await compute([] { return 6 * 7; });
  int all = mine;
  co_await world.all_reduce(all, sum);
  TUTTI_EXPECT(all == 42 * world.size());
}

task<> race(communicator world) {
  int x = 0;
  const auto start = now();
  const auto first = co_await when_any(world.recv(x, any_source), sleep_for(5ms));
  TUTTI_EXPECT(first.index() == 1);
  TUTTI_EXPECT(now() - start == 5ms);
}

}  // namespace

TEST_CASE("simulator: a message and its cost") {
  const sim::report r = sim::run(world_of(2), greet);
  CHECK_MESSAGE(r.all_returned(), r.text());
  CHECK(r.time > 5us);
  CHECK(r.time < 1s);
  CHECK(r.ranks[0].connections == 1);
  CHECK(r.frames >= 3);  // the message, and a leave frame from each rank
  CHECK(r.bytes == sizeof(int));
}

TEST_CASE("simulator: the result of main") {
  const sim::report r = sim::run(world_of(3), number_of);
  REQUIRE(r.all_returned());
  for (int rank = 0; rank < 3; ++rank) CHECK(r.ranks[static_cast<std::size_t>(rank)].code == rank + 10);
}

TEST_CASE("simulator: hours of sleep pass at once, and end exactly at a timeout") {
  sim::options patient = world_of(3);
  patient.timeout = 10h;
  const sim::report slept = sim::run(patient, sleep_through);
  CHECK_MESSAGE(slept.all_returned(), slept.text());
  CHECK(slept.time >= 6h);
  const sim::report timed = sim::run(world_of(3), race);
  CHECK_MESSAGE(timed.all_returned(), timed.text());
}

TEST_CASE("simulator: a timeout fires when no other event is left") {
  sim::options o = world_of(2);
  o.timeout = 10min;
  const sim::report r = sim::run(o, wait_both);
  CHECK_FALSE(r.stuck());
  CHECK(r.time >= 10min);
  CHECK(r.time < 11min);
  for (const sim::rank_report& one : r.ranks) {
    CHECK(one.how == sim::ending::threw);
    CHECK(one.reason == errc::timed_out);
  }
}

TEST_CASE("simulator: with_timeout is virtual") {
  sim::options o = world_of(3);
  o.timeout = 10h;
  // Rank 2 keeps the world open; the message from rank 1 never arrives.
  const sim::report r = sim::run(
      o, [](communicator world) { return world.rank() == 1 ? sleep_through(world) : time_out(world); });
  CHECK(r.ranks[0].how == sim::ending::returned);
}

TEST_CASE("simulator: a rank that waits for ever is named with its operation") {
  sim::options o = world_of(2);
  o.limit = 1s;  // before the timeout
  const sim::report r = sim::run(o, wait_both);
  CHECK(r.stuck());
  CHECK(r.ranks[0].text.find("recv from rank 1, tag 7 on world") != std::string::npos);
  CHECK(r.text().find("rank 1 waits for ever: recv from rank 0, tag 7 on world") != std::string::npos);

  sim::options quick = world_of(2);
  const sim::report channel_only = sim::run(quick, wait_at_channel);
  CHECK(channel_only.ranks[0].how == sim::ending::returned);
  CHECK(channel_only.ranks[1].how == sim::ending::stuck);
}

TEST_CASE("simulator: an exception of main ends the other ranks, with its text") {
  const sim::report r = sim::run(world_of(3), fail_on_one);
  for (const sim::rank_report& one : r.ranks) {
    CHECK(one.how == sim::ending::threw);
    CHECK(one.text.find("no more paper") != std::string::npos);
  }
  CHECK(r.ranks[0].reason == errc::peer_failed);
  CHECK(r.time < 2s);
}

TEST_CASE("simulator: computation takes no virtual time, Asio's timers take real time") {
  const sim::report computed = sim::run(world_of(4), compute_something);
  CHECK_MESSAGE(computed.all_returned(), computed.text());
  CHECK(computed.repeatable);
  // One rank only: the simulator does not wait for a rank's timer while another's timeout can fire.
  const sim::report waited = sim::run(world_of(1), wait_for_asio);
  CHECK_MESSAGE(waited.all_returned(), waited.text());
  CHECK_FALSE(waited.repeatable);
}

TEST_CASE("simulator: invalid settings are refused") {
  CHECK_THROWS_AS(sim::run(world_of(0), greet), error);
  sim::options o = world_of(2);
  o.faults.deaths.push_back({2, 1us, 0});
  CHECK_THROWS_AS(sim::run(o, greet), error);
}

namespace {

tutti::test::failure failure_with(const sim::options& o) {
  return tutti::test::failure_of([&o] { sim::run(o, greet); });
}

task<> simulate_inside(communicator world) {
  const auto inner = failure_with(world_of(2));
  TUTTI_EXPECT(inner.code == errc::invalid_argument);
  TUTTI_EXPECT(inner.says("inside"));
  co_await world.barrier();
}

task<> poll_without_rest(communicator world) {
  const auto start = now();
  if (world.rank() == 0) {
    int x = 7;
    co_await sleep_for(1ms);
    co_await world.send(x, 1);
  } else {
    int x = 0;
    request receiving = world.irecv(x, 0);
    while (!receiving.done()) co_await sleep_for(0s);
    co_await receiving;
    TUTTI_EXPECT(x == 7);
    TUTTI_EXPECT(now() - start >= 1ms);
  }
}

}  // namespace

TEST_CASE("simulator: errors name invalid options") {
  const auto refused = [](const char* option, auto change) {
    sim::options o = world_of(2);
    change(o);
    const tutti::test::failure f = failure_with(o);
    CAPTURE(option);
    CAPTURE(f.text);
    CHECK(f.code == errc::invalid_argument);
    CHECK(f.says(option));
  };
  refused("ranks", [](sim::options& o) { o.ranks = 0; });
  refused("ranks_per_host", [](sim::options& o) { o.ranks_per_host = 0; });
  refused("timeout", [](sim::options& o) { o.timeout = 0ms; });
  refused("network.slice", [](sim::options& o) { o.network.slice = 0; });
  refused("network.latency", [](sim::options& o) { o.network.latency = -1us; });
  refused("network.latency", [](sim::options& o) { o.network.latency = sim::never; });
  refused("network.local_latency", [](sim::options& o) { o.network.local_latency = -1us; });
  refused("network.bytes_per_second", [](sim::options& o) { o.network.bytes_per_second = -1; });
  refused("network.local_bytes_per_second", [](sim::options& o) { o.network.local_bytes_per_second = NAN; });
  refused("noise.split", [](sim::options& o) { o.noise.split = 5; });
  refused("noise.busy", [](sim::options& o) { o.noise.busy = -0.5; });
  refused("noise.jitter", [](sim::options& o) { o.noise.jitter = -1ns; });
  refused("faults.deaths.rank", [](sim::options& o) { o.faults.deaths.push_back({.rank = 2, .at = 1ms}); });
  refused("faults.partitions.ranks", [](sim::options& o) { o.faults.partitions.push_back({.ranks = {-1}}); });
  refused("faults.skews.drift_ppm",
          [](sim::options& o) { o.faults.skews.push_back({.rank = 0, .drift_ppm = -2e6}); });
  for (const double ppm : {-999'999.99999, 1e30, HUGE_VAL, double{NAN}})
    refused("faults.skews.drift_ppm",
            [ppm](sim::options& o) { o.faults.skews.push_back({.rank = 0, .drift_ppm = ppm}); });
  refused("faults.skews.drift_ppm", [](sim::options& o) {
    for (int i = 0; i < 2; ++i) o.faults.skews.push_back({.rank = 1, .drift_ppm = -300'000});
  });
  for (const sim::duration ahead : {sim::never, -sim::never, sim::duration(-24h * 400)})
    refused("faults.skews.ahead",
            [ahead](sim::options& o) { o.faults.skews.push_back({.rank = 0, .ahead = ahead}); });
  refused("faults.corruptions.to",
          [](sim::options& o) { o.faults.corruptions.push_back({.from = 0, .to = 7}); });
  CHECK(failure_with(world_of(2)).code == errc::success);
  for (const double sign : {-1.0, 1.0}) {
    sim::options o = world_of(2);
    o.faults.skews = {{0, sign < 0 ? -24h * 180 : 24h * 180, sign * 250'000}, {0, 0s, sign * 250'000}};
    CHECK(failure_with(o).code == errc::success);
  }
}

TEST_CASE("a simulation with an endless timeout ends, and one without a port's limit too") {
  sim::options o = world_of(2);
  o.timeout = std::chrono::milliseconds::max();
  o.network.bytes_per_second = 0;
  CHECK(sim::run(o, greet).all_returned());
}

TEST_CASE("a simulation inside a runtime, or inside another one, is refused") {
  CHECK(sim::run(world_of(2), simulate_inside).all_returned());
  CHECK_NOTHROW(run_local(2, simulate_inside));
}

TEST_CASE("simulator: a rank that polls without pause lets time pass") {
  CHECK(sim::run(world_of(2), poll_without_rest).all_returned());
}
