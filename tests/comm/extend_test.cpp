// SPDX-License-Identifier: Apache-2.0
// What extensions are promised of communicators: side channels, communicators by agreed numbers, what is kept with one,
// and its failure.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <tutti/extend/failure.hpp>
#include <tutti/extend/poller.hpp>
#include <tutti/extend/side_channel.hpp>
#include <tutti/tutti.hpp>
#include <typeinfo>
#include <vector>

namespace {

using namespace tutti;

// Rank 0 draws a number, and tells the others.
task<std::uint32_t> agree(communicator world) {
  std::uint32_t number = world.rank() == 0 ? extend::draw_number(world) : 0;
  co_await world.broadcast(number, 0);
  co_return number;
}

task<> side_channels(communicator world) {
  communicator c = co_await world.duplicate();
  extend::set_name(c, "mine");
  const communicator beside = extend::side_channel(c, 0, "test");
  TUTTI_EXPECT(beside.name() == "mine (test)");
  int mine = 1, theirs = 2, got = 0;
  const int other = 1 - world.rank();
  request a = c.isend(mine, other), b = beside.isend(theirs, other);
  co_await beside.recv(got, other);
  TUTTI_EXPECT(got == 2);
  co_await c.recv(got, other);
  TUTTI_EXPECT(got == 1);
  co_await a;
  co_await b;
  co_await world.barrier();

  if (world.rank() == 0) c.abort();
  const auto ended = co_await as_result(beside.barrier());
  TUTTI_EXPECT(ended.error);
  co_await world.barrier();
}

task<> failures(communicator world) {
  const communicator c = co_await world.duplicate();
  const communicator beside = extend::side_channel(c, 6, "test");
  TUTTI_EXPECT(extend::failure_of(c).code == errc::success);
  if (world.rank() == 0) extend::fail(beside, errc::device_failed, "the reason");
  const auto ended = co_await as_result(beside.barrier());
  TUTTI_EXPECT(ended.error);
  TUTTI_EXPECT(extend::failure_of(beside).code == errc::device_failed);
  TUTTI_EXPECT(extend::failure_of(beside).text.find("the reason") != std::string::npos);
  co_await c.barrier();
}

task<> numbered(communicator world) {
  const std::uint32_t number = co_await agree(world), other = co_await agree(world);
  TUTTI_EXPECT(number != other);
  communicator parent = co_await world.duplicate();
  const communicator child = extend::duplicate_numbered(parent, other, "child");
  TUTTI_EXPECT(child.name() == "child");
  if (world.rank() != 1) {
    communicator some = extend::make_numbered(parent, number, "some", {2, 0});
    extend::set_name(some, "other");
    TUTTI_EXPECT(some.name() == "other");
    TUTTI_EXPECT(some.rank() == (world.rank() == 2 ? 0 : 1));
    TUTTI_EXPECT((extend::world_ranks_of(some) == std::vector<int>{2, 0}));
    if (world.rank() == 0) parent.abort();
    const auto ended = co_await as_result(child.barrier());
    TUTTI_EXPECT(ended.error);  // with its parent
    co_await some.barrier();    // which that one has not

    error again(errc::success, "");
    try {
      static_cast<void>(extend::make_numbered(world, number, "again", {2, 0}));
    } catch (const error& e) {
      again = e;
    }
    TUTTI_EXPECT(again.code() == errc::protocol);
  }
  co_await world.barrier();
}

task<> limited(communicator world) {
  extend::set_timeout(world, std::chrono::milliseconds(20));
  int never = 0;
  const auto got = co_await as_result(world.recv(never, 0));
  TUTTI_EXPECT(got.error == errc::timed_out);
}

task<> attributes(communicator world) {
  static constexpr char one = 0, two = 0;
  std::weak_ptr<void> kept, of_world;
  {
    const communicator c = co_await world.duplicate();
    TUTTI_EXPECT(extend::attribute_of(c, &one) == nullptr);
    kept = extend::attribute_of(c, &one) = std::make_shared<int>(1);
    TUTTI_EXPECT(extend::attribute_of(c, &two) == nullptr);
    TUTTI_EXPECT(extend::attribute_of(world, &one) == nullptr);
    of_world = extend::world_attribute_of(c, &one) = std::make_shared<int>(2);
  }
  TUTTI_EXPECT(kept.expired());
  TUTTI_EXPECT(extend::world_attribute_of(world, &one) == of_world.lock());
}

task<> identities(communicator world) {
  const communicator c = co_await world.duplicate();
  const extend::identity mine = extend::identity_of(c), other = extend::identity_of(world);
  std::uint64_t numbers[2]{mine.world, mine.communicator};
  co_await world.broadcast(numbers, 0);
  TUTTI_EXPECT(numbers[0] == mine.world);
  TUTTI_EXPECT(numbers[1] == mine.communicator);
  TUTTI_EXPECT(mine.world == other.world);
  TUTTI_EXPECT(mine.communicator != other.communicator);
  TUTTI_EXPECT(mine.rank == world.rank());
  TUTTI_EXPECT(mine.places.size() == 2);
  TUTTI_EXPECT(mine.places[0].pid == mine.places[1].pid);
}

}  // namespace

TEST_CASE("a side channel has messages of its own, and fails with its communicator") {
  run_local(2, side_channels);
}
TEST_CASE("an extension fails a communicator on all ranks, and no other") { run_local(2, failures); }
TEST_CASE("communicators by a number that the ranks agree on") { run_local(3, numbered); }
TEST_CASE("the timeout of a communicator is set") { run_local(1, limited); }
TEST_CASE("attributes of a communicator and of its world") { run_local(1, attributes); }
TEST_CASE("the identity of a communicator is the same on all ranks") { run_local(2, identities); }

TEST_CASE("every symbol of extend/ has its version in its name") {
  const std::string version = "v" + std::to_string(extend::version);
  const std::string name = typeid(extend::poller).name();
  CHECK(name.find("extend" + std::to_string(version.size()) + version) != name.npos);
}
