// SPDX-License-Identifier: Apache-2.0
// A member that agrees on numbers that are in use, and speaks of what there is not: it is cut off.
#include "base/fields.hpp"
#include "comm/world.hpp"
#include "support/agreement_messages.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

comm::world& world_behind(const communicator& c) {
  const operation<> any = c.barrier();
  return comm::world_of(*any.what().comm);
}
std::uint32_t number_of(const communicator& c) {
  const operation<> any = c.barrier();
  return any.what().comm->numbers().id;
}

void say(const communicator& world, int to, std::uint32_t round, const agreed::message& m) {
  const std::string bytes = base::to_bytes(m);
  world_behind(world).endpoint().control().send(
      0, to, p2p::agreement_message{round, std::as_bytes(std::span(bytes))});
}

// Rank 0 answers the others' shrink() with this number, until they have cut it off or leave. One in use may come
// from an honest rank to which another has lied: only that shrink() fails.
task<> settle_on(communicator world, std::uint32_t wanted, agreed::list left_out = {}) {
  const communicator other = co_await world.duplicate();
  const std::uint32_t id = wanted == 1 ? number_of(other) : wanted;
  const bool is_one_of_a_rank = wanted <= 1;
  if (world.rank() == 0) {
    const p2p::peers& all = world_behind(world).endpoint().peers();
    while (!all.gone(1) || !all.gone(2)) {
      for (const int to : {1, 2})
        if (!all.gone(to)) say(world, to, 1, agreed::settled{0, id, left_out, {}});
      co_await sleep_for(1ms);
    }
    co_return;
  }
  result<communicator> shrunk = co_await as_result(world.shrink());
  if (is_one_of_a_rank) {
    TUTTI_EXPECT(shrunk.error == errc::protocol);
    co_return;
  }
  const communicator rest = shrunk.value;
  TUTTI_EXPECT(rest.size() == 2);
  TUTTI_EXPECT(world_behind(world).endpoint().peers()[0].gone.code == errc::protocol);
  int both = 1;
  co_await rest.all_reduce(both, sum);
  TUTTI_EXPECT(both == 2);
}

task<> speak_of_many_rounds(communicator world) {
  co_await world.barrier();
  const p2p::peers& all = world_behind(world).endpoint().peers();
  if (world.rank() == 0)
    for (std::uint32_t round = 1; round < 2000; ++round) say(world, 1, round, agreed::join{});
  while (!all.gone(1 - world.rank())) co_await sleep_for(1ms);
  if (world.rank() == 1) TUTTI_EXPECT(all[0].gone.code == errc::protocol);
}

task<> open_numbers(communicator world) {
  comm::world& w = world_behind(world);
  const communicator open = co_await world.duplicate();
  communicator gone = co_await world.duplicate();
  const std::uint32_t closed = number_of(gone);
  gone = {};
  for (const std::uint32_t id : {0U, number_of(open), closed, 1U << 28, 1U << 31, ~0U}) {
    errc why = errc::success;
    try {
      w.make_agreed_communicator({id, 0}, "agreed", {0});
    } catch (const error& e) {
      why = static_cast<errc>(e.code().value());
    }
    TUTTI_EXPECT(why == errc::protocol);
  }
}

}  // namespace

TEST_CASE("hostile member: a number in use, or that no rank gives out, is not agreed on") {
  for (const std::uint32_t id : {0U, 1U, 1U << 28, 1U << 31, ~0U})
    run_local(3, over("tcp"), [id](communicator world) { return settle_on(std::move(world), id); });
}

TEST_CASE("hostile member: it does not leave out a rank that there is not") {
  for (const std::int32_t none : {3, 99, -1})
    run_local(3, over("tcp"),
              [none](communicator world) { return settle_on(std::move(world), 1000, agreed::list{none}); });
}

TEST_CASE("hostile member: it is cut off when it speaks of rounds without end") {
  run_local(2, over("tcp"), speak_of_many_rounds);
}

TEST_CASE("hostile member: duplicate, split and group open no number that is in use") {
  run_local(1, alone(), open_numbers);
}
