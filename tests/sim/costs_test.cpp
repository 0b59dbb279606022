// SPDX-License-Identifier: Apache-2.0
// Costs in the simulated network, compared with LogGP for single messages and whole collectives.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <tutti/sim/simulation.hpp>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

// Round numbers, no header costs, and no rendezvous.
sim::options plain(int ranks) {
  sim::options o;
  o.ranks = ranks;
  o.network.latency = 10us;
  o.network.overhead = 1us;
  o.network.bytes_per_second = 1e9;
  o.network.header_bytes = 0;
  o.network.eager_limit = std::size_t{1} << 40;
  return o;
}

struct timing {
  sim::duration begun{0};
  sim::duration ended{0};
};
using timings = std::vector<timing>;

// Runs `one(world)` after a barrier, which makes its connections. Returns the time of the slowest rank.
template <class One>
double microseconds(const sim::options& o, One one) {
  timings all(static_cast<std::size_t>(o.ranks));
  const auto body = [&all, one](communicator world) { return one(std::move(world), &all); };
  const sim::report r = sim::run(o, body);
  REQUIRE_MESSAGE(r.all_returned(), r.text());
  sim::duration begun = sim::never, ended{0};
  for (const timing& t : all) {
    begun = std::min(begun, t.begun);
    ended = std::max(ended, t.ended);
  }
  return static_cast<double>((ended - begun).count()) / 1000;
}

sim::duration clock_now() { return now().time_since_epoch(); }

task<> ping(communicator world, timings* all, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  timing& mine = (*all)[static_cast<std::size_t>(world.rank())];
  co_await world.barrier();
  co_await sleep_for(1ms);  // both are idle
  mine.begun = clock_now();
  if (world.rank() == 0) {
    co_await world.send(data, 1);
  } else {
    co_await world.recv(data, 0);
  }
  mine.ended = clock_now();
}

task<> reduce(communicator world, timings* all, std::size_t bytes, algorithm with) {
  std::vector<float> data(bytes / sizeof(float));
  co_await world.all_reduce(data, sum).with(with);  // makes the connections
  timing& mine = (*all)[static_cast<std::size_t>(world.rank())];
  const auto start = std::chrono::ceil<std::chrono::seconds>(now().time_since_epoch() + 1s);
  co_await sleep_for(start - now().time_since_epoch());
  mine.begun = clock_now();
  co_await world.all_reduce(data, sum).with(with);
  mine.ended = clock_now();
}

task<> spread(communicator world, timings* all, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  co_await world.broadcast(data, 0).with(algorithm::binomial);
  timing& mine = (*all)[static_cast<std::size_t>(world.rank())];
  const auto start = std::chrono::ceil<std::chrono::seconds>(now().time_since_epoch() + 1s);
  co_await sleep_for(start - now().time_since_epoch());
  mine.begun = clock_now();
  co_await world.broadcast(data, 0).with(algorithm::binomial);
  mine.ended = clock_now();
}

double about(double wanted) { return wanted * 1e-3 + 0.02; }  // some nanoseconds of rounding

}  // namespace

TEST_CASE("simulator: a message costs o + bG + L + o") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{100'000}}) {
    const double us =
        microseconds(plain(2), [bytes](communicator w, timings* t) { return ping(std::move(w), t, bytes); });
    const double wanted = 1 + static_cast<double>(bytes) / 1000 + 10 + 1;
    CHECK(std::abs(us - wanted) < about(wanted));
  }
}

TEST_CASE("simulator: recursive doubling costs log2(n) messages in sequence") {
  for (const int ranks : {2, 4, 16, 64}) {
    const double us = microseconds(plain(ranks), [](communicator w, timings* t) {
      return reduce(std::move(w), t, 1000, algorithm::recursive_doubling);
    });
    const double wanted = std::log2(ranks) * (1 + 1 + 10 + 1);
    CAPTURE(ranks);
    CHECK(std::abs(us - wanted) < about(wanted));
  }
}

TEST_CASE("simulator: a ring moves 2(n-1)/n of the data in 2(n-1) steps") {
  for (const int ranks : {2, 3, 8}) {
    const std::size_t bytes = 24'000;
    const double us = microseconds(plain(ranks), [](communicator w, timings* t) {
      return reduce(std::move(w), t, 24'000, algorithm::ring);
    });
    const double n = ranks;
    const double block = static_cast<double>(bytes) / n / 1000;
    const double least = 2 * (n - 1) * (block + 10 + 2);
    CAPTURE(ranks);
    CHECK(us > least - about(least));
    // In slices, each with its own overhead.
    CHECK(us < least * 1.35);
  }
}

TEST_CASE("simulator: a binomial tree costs log2(n) messages, and the sequential sends of its root") {
  for (const int ranks : {2, 8, 64}) {
    const double us =
        microseconds(plain(ranks), [](communicator w, timings* t) { return spread(std::move(w), t, 1000); });
    const double steps = std::log2(ranks);
    const double wanted = steps * (1 + 1 + 10 + 1);
    CAPTURE(ranks);
    CHECK(std::abs(us - wanted) < about(wanted) + wanted * 0.01);
  }
}
