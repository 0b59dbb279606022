// SPDX-License-Identifier: Apache-2.0
// Prepared operations give the same results as unprepared calls; what prepare refuses, and when.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

using ints = std::vector<int>;
using counts = std::vector<std::size_t>;

// From a few bytes to sizes sent in pieces.
constexpr std::size_t lengths[] = {1, 1000, 200'000};
constexpr int rounds = 5;

task<> averages(communicator world) {
  for (const std::size_t n : lengths) {
    std::vector<float> x(n);
    prepared<> average = co_await prepare(world.all_reduce(x, avg));
    TUTTI_EXPECT(average);
    for (int round = 0; round < rounds; ++round) {
      x.assign(n, static_cast<float>(world.rank() + round));
      co_await average();
      const float mean = static_cast<float>(world.size() - 1) / 2 + static_cast<float>(round);
      TUTTI_EXPECT(x.front() == mean && x.back() == mean);
      request running = start(average());
      co_await running;
      TUTTI_EXPECT(x.front() == mean);
    }
  }
}

// Each with a root, uneven blocks, or neither.
task<> collectives(communicator world) {
  const int me = world.rank(), ranks = world.size(), last = ranks - 1;
  const auto p = static_cast<std::size_t>(ranks);
  constexpr std::size_t block = 300;
  ints own(block), all(block * p), vector(block), result(block);
  counts even(p, block);
  const auto barrier = co_await prepare(world.barrier());
  const auto broadcast = co_await prepare(world.broadcast(vector, last));
  const auto reduce = co_await prepare(world.reduce(own, result, sum, last));
  const auto scatter = co_await prepare(world.scatter(all, own, 0));
  const auto gather = co_await prepare(world.gather(own, all, last));
  const auto all_gather = co_await prepare(world.all_gather(own, all));
  const auto all_gather_v = co_await prepare(world.all_gather_v(own, all, even));
  const auto reduce_scatter = co_await prepare(world.reduce_scatter(all, own, sum));
  const auto all_to_all = co_await prepare(world.all_to_all(all, all));
  const auto scan = co_await prepare(world.scan(own, result, sum));
  for (int round = 1; round <= rounds; ++round) {
    vector.assign(block, me == last ? round : 0);
    co_await broadcast();
    TUTTI_EXPECT(vector.back() == round);
    own.assign(block, me + round);
    co_await reduce();
    const int total = ranks * (ranks - 1) / 2 + ranks * round;
    if (me == last) TUTTI_EXPECT(result.back() == total);
    co_await scan();
    TUTTI_EXPECT(result.back() == me * (me + 1) / 2 + (me + 1) * round);
    for (const auto* each : {&all_gather, &all_gather_v, &gather}) {
      all.assign(all.size(), -1);
      co_await (*each)();
      if (each != &gather || me == last) TUTTI_EXPECT(all.front() == round && all.back() == last + round);
      co_await barrier();
    }
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i / block) * round;
    co_await scatter();
    TUTTI_EXPECT(own.back() == me * round);
    co_await reduce_scatter();
    TUTTI_EXPECT(own.back() == me * round * ranks);
    co_await all_to_all();
    TUTTI_EXPECT(all.front() == me * round && all.back() == me * round);
  }
}

task<> sends_and_receives(communicator world) {
  const int me = world.rank(), other = 1 - me;
  for (const std::size_t n : lengths) {
    ints out(n), in(n);
    const auto sending = co_await prepare(world.send(out, other, 3));
    const prepared<status> receiving = co_await prepare(world.recv(in, other, 3));
    for (int round = 0; round < rounds; ++round) {
      out.assign(n, me + round);
      request sent = start(sending());
      const status came = co_await receiving();
      TUTTI_EXPECT(came.source == other && came.count<int>() == n);
      TUTTI_EXPECT(in.back() == other + round);
      co_await sent;
    }
  }
}

// A second start does not wait: it is refused, and the first continues.
task<> one_at_a_time(communicator world) {
  ints x(10, 1);
  const auto adding = co_await prepare(world.all_reduce(x, sum));
  int token = 0;
  if (world.rank() == 0) {
    request first = start(adding());
    const failure second = co_await failure_in(adding());
    TUTTI_EXPECT(second.code == errc::invalid_argument);
    TUTTI_EXPECT(second.says("has not ended"));
    for (int r = 1; r < world.size(); ++r) co_await world.send(token, r);
    co_await first;
  } else {
    co_await world.recv(token, 0);
    co_await adding();
  }
  TUTTI_EXPECT(x.front() == world.size());
  co_await adding();
  TUTTI_EXPECT(x.front() == world.size() * world.size());
}

task<> handle_goes_first(communicator world) {
  ints x(10, 1);
  std::optional<prepared<>> adding = co_await prepare(world.all_reduce(x, sum));
  int token = 0;
  if (world.rank() == 0) {
    request running = start((*adding)());
    adding.reset();
    for (int r = 1; r < world.size(); ++r) co_await world.send(token, r);
    co_await running;
  } else {
    co_await world.recv(token, 0);
    co_await (*adding)();
  }
  TUTTI_EXPECT(x.front() == world.size());
}

task<> refused(communicator world) {
  ints four(4), five(5);
  const auto expect = [](const failure& f, const std::string& why) {
    if (f.code != errc::invalid_argument || !f.says(why))
      throw std::runtime_error("wanted '" + why + "', got '" + f.text + "'");
  };
  expect(co_await failure_in(prepare(world.all_reduce(four, five, sum))),
         "prepare of all_reduce: all_reduce on world, rank " + std::to_string(world.rank()) +
             ": the input has 4 elements, the result 5");
  expect(co_await failure_in(prepare(world.send(four, world.size()))), "is outside world");
  expect(co_await failure_in(prepare(world.split(0, 0))), "each call makes a communicator");
  expect(co_await failure_in(prepare(communicator().barrier())), "it is empty");
  const auto adding = co_await prepare(world.all_reduce(four, sum));
  expect(co_await failure_in(adding().with(algorithm::ring)), "its algorithm was chosen by prepare");
  co_await adding();  // the communicator still works
  CHECK_THROWS_AS(static_cast<void>(prepared<>()()), error);
}

task<> different_calls(communicator world, std::vector<failure>* seen) {
  ints x(world.rank() == 0 ? 4U : 5U);
  (*seen)[static_cast<std::size_t>(world.rank())] = co_await failure_in(prepare(world.all_reduce(x, sum)));
}

task<> prepare_and_call(communicator world, std::vector<failure>* seen) {
  ints x(4);
  failure& mine = (*seen)[static_cast<std::size_t>(world.rank())];
  if (world.rank() == 0) {
    mine = co_await failure_in(prepare(world.all_reduce(x, sum)));
  } else {
    mine = co_await failure_in(world.all_reduce(x, sum));
  }
}

}  // namespace

TEST_CASE("prepared: an all_reduce gives the same result as unprepared, each time") {
  for (const std::string& transport : transports)
    for (const int ranks : {1, 2, 3, 4}) run_local(ranks, over(transport), averages);
}

TEST_CASE("prepared: every collective") {
  for (const std::string& transport : transports)
    for (const int ranks : {1, 3}) run_local(ranks, over(transport), collectives);
}

TEST_CASE("prepared: messages") {
  for (const std::string& transport : transports) run_local(2, over(transport), sends_and_receives);
}

TEST_CASE("prepared: one operation at a time") {
  for (const std::string& transport : transports) run_local(3, over(transport), one_at_a_time);
}

TEST_CASE("prepared: a started operation continues without the handle") {
  for (const std::string& transport : transports) run_local(2, over(transport), handle_goes_first);
}

TEST_CASE("prepared: prepare refuses an invalid call") { run_local(2, over("shm"), refused); }

TEST_CASE("prepared: ranks that prepare different calls all get the error") {
  for (const std::string& transport : transports) {
    std::vector<failure> seen(3, describe({}));
    run_local(3, over(transport), [&seen](communicator world) { return different_calls(world, &seen); });
    for (const failure& f : seen) {
      CAPTURE(f.text);
      CHECK(f.code == errc::mismatch);
      CHECK(f.says("prepare of all_reduce(5 elements of int32, sum"));
      CHECK(f.says("prepare of all_reduce(4 elements of int32, sum"));
    }
  }
}

TEST_CASE("prepared: prepare does not call the operation") {
  std::vector<failure> seen(2, describe({}));
  run_local(2, over("tcp"), [&seen](communicator world) { return prepare_and_call(world, &seen); });
  for (const failure& f : seen) {
    CAPTURE(f.text);
    CHECK(f.code == errc::mismatch);
  }
}
