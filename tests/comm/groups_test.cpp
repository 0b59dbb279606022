// SPDX-License-Identifier: Apache-2.0
// Communicators made from communicators: their members, their isolation from each other, and their
// destruction.
#include "comm/topology.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <numeric>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

void on_each_transport(int ranks, task<> (*main)(communicator)) {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CAPTURE(ranks);
    CHECK_NOTHROW(run_local(ranks, over(transport), main));
  }
}

// Every member's rank in `world`, in the order of `c`.
task<std::vector<int>> members_of(communicator c, int world_rank) {
  std::vector<int> all(static_cast<std::size_t>(c.size()));
  co_await c.all_gather(world_rank, all);
  co_return all;
}

task<> odd_and_even(communicator world) {
  const int color = world.rank() % 2;
  communicator part = co_await world.split(color, -world.rank());
  TUTTI_EXPECT(part);
  std::vector<int> wanted;
  for (int r = world.size() - 1; r >= 0; --r)
    if (r % 2 == color) wanted.push_back(r);
  const std::vector<int> got = co_await members_of(part, world.rank());
  TUTTI_EXPECT(got == wanted);
  TUTTI_EXPECT(part.name().find("world/split") == 0);
  int sum_of_ranks = world.rank();
  co_await part.all_reduce(sum_of_ranks, sum);
  TUTTI_EXPECT(sum_of_ranks == std::accumulate(wanted.begin(), wanted.end(), 0));
}

task<> not_a_member(communicator world) {
  communicator part = co_await world.split(world.rank() == 0 ? -1 : 7, 0);
  TUTTI_EXPECT(static_cast<bool>(part) == (world.rank() != 0));
  if (part) co_await part.barrier();
  const std::vector<int> ranks = {world.size() - 1, 0};
  communicator pair = co_await world.group(ranks);
  const bool inside = world.rank() == 0 || world.rank() == world.size() - 1;
  TUTTI_EXPECT(static_cast<bool>(pair) == inside);
  if (!pair) co_return;
  TUTTI_EXPECT(pair.size() == 2);
  TUTTI_EXPECT(pair.rank() == (world.rank() == 0 ? 1 : 0));
  const std::vector<int> got = co_await members_of(pair, world.rank());
  TUTTI_EXPECT(got == ranks);
}

// The same tags and ranks everywhere: messages differ only in their communicator.
task<> apart(communicator world) {
  communicator twin = co_await world.duplicate();
  communicator third = co_await twin.duplicate();
  const int right = (world.rank() + 1) % world.size();
  const int left = (world.rank() + world.size() - 1) % world.size();
  const int a = 10 * world.rank() + 1;
  const int b = 10 * world.rank() + 2;
  const int c = 10 * world.rank() + 3;
  request sending_c = third.isend(c, right);
  request sending_b = twin.isend(b, right);
  request sending_a = world.isend(a, right);
  int from_world = 0;
  int from_twin = 0;
  int from_third = 0;
  co_await world.recv(from_world, left);
  co_await twin.recv(from_twin, any_source);
  co_await third.recv(from_third, left, any_tag);
  TUTTI_EXPECT(from_world == 10 * left + 1);
  TUTTI_EXPECT(from_twin == 10 * left + 2);
  TUTTI_EXPECT(from_third == 10 * left + 3);
  co_await sending_a;
  co_await sending_b;
  co_await sending_c;
}

// Made on several communicators at once, in different orders on different ranks.
task<> at_once(communicator world) {
  communicator twin = co_await world.duplicate();
  for (int round = 0; round < 5; ++round) {
    std::vector<communicator> made(2);
    const bool turned = world.rank() % 2 == 1;
    auto first = turned ? twin.split(world.rank() / 2, 0) : world.split(world.rank() / 2, 0);
    auto second = turned ? world.split(world.rank() / 2, 0) : twin.split(world.rank() / 2, 0);
    auto both = co_await when_all(std::move(first), std::move(second));
    communicator from_world = turned ? std::get<1>(both) : std::get<0>(both);
    communicator from_twin = turned ? std::get<0>(both) : std::get<1>(both);
    const int x = world.rank();
    const int y = 100 + world.rank();
    std::vector<int> xs(static_cast<std::size_t>(from_world.size()));
    std::vector<int> ys(static_cast<std::size_t>(from_twin.size()));
    auto gather_y = from_twin.all_gather(y, ys);
    auto gather_x = from_world.all_gather(x, xs);
    co_await when_all(std::move(gather_y), std::move(gather_x));
    for (std::size_t i = 0; i < xs.size(); ++i) TUTTI_EXPECT(ys[i] == 100 + xs[i]);
  }
}

// A fast rank sends on a communicator that its peer does not have yet.
task<> ahead(communicator world) {
  for (int round = 0; round < 20; ++round) {
    communicator made = co_await world.duplicate();
    int x = round;
    if (made.rank() == 0) {
      for (int r = 1; r < made.size(); ++r) co_await made.send(x, r);
    } else {
      x = -1;
      co_await made.recv(x, 0);
      TUTTI_EXPECT(x == round);
    }
  }
}

task<> wrong_lists(communicator world) {
  const std::vector<int> outside = {0, world.size()};
  failure f = co_await failure_in(world.group(outside));
  TUTTI_EXPECT(f.code == errc::invalid_argument);
  TUTTI_EXPECT(f.text.find("is outside world") != std::string::npos);
  const std::vector<int> twice = {0, 0};
  f = co_await failure_in(world.group(twice));
  TUTTI_EXPECT(f.code == errc::invalid_argument);
  TUTTI_EXPECT(f.text.find("named twice") != std::string::npos);
  co_await world.barrier();
}

// A collective that fails on one communicator leaves its parent as it was.
task<> failing_part(communicator world) {
  communicator part = co_await world.duplicate();
  std::vector<int> data(world.rank() == 0 ? 3 : 4);
  const failure f = co_await failure_in(part.all_reduce(data, sum));
  TUTTI_EXPECT(f.code == errc::mismatch);
  int one = 1;
  co_await world.all_reduce(one, sum);
  TUTTI_EXPECT(one == world.size());
  communicator again = co_await world.duplicate();
  co_await again.barrier();
}

// A rank that is no member is not waited for. This rank itself is always a member.
task<> receives_from_any_that_is_left(communicator world) {
  const std::vector<int> first_two = {0, 1};
  const std::vector<int> first = {0};
  communicator pair = co_await world.group(first_two);
  communicator alone = co_await world.group(first);
  co_await world.barrier();  // a rank without a connection to another does not notice its end
  int x = 0;
  if (world.rank() == 2) co_return;
  request from_pair = world.rank() == 0 ? pair.irecv(x, any_source) : request();
  const failure last = co_await failure_in(world.recv(x, 2));  // rank 2 has left
  TUTTI_EXPECT(last.code == errc::peer_left);
  if (world.rank() == 1) {
    co_await pair.send(17, 0);
    co_return;
  }
  co_await from_pair;
  TUTTI_EXPECT(x == 17);
  const failure other = co_await failure_in(world.recv(x, 1));
  TUTTI_EXPECT(other.code == errc::peer_left);
  const failure nobody = co_await failure_in(pair.recv(x, any_source));
  TUTTI_EXPECT(nobody.code == errc::peer_left);
  TUTTI_EXPECT(nobody.says("rank 1"));
  request from_self = alone.irecv(x, any_source);
  co_await alone.send(18, 0);
  co_await from_self;
  TUTTI_EXPECT(x == 18);
  // A rank may send to itself again.
  request once_more = world.irecv(x, any_source);
  co_await world.send(19, 0);
  co_await once_more;
  TUTTI_EXPECT(x == 19);
}

task<> dies_outside(communicator world) {
  const std::vector<int> first_two = {0, 1};
  communicator pair = co_await world.group(first_two);
  co_await world.barrier();
  if (world.rank() == 2) throw std::runtime_error("rank 2 gives up");
  int x = 0;
  request from_pair = world.rank() == 0 ? pair.irecv(x, any_source) : request();
  const failure dead = co_await failure_in(world.recv(x, 2));
  TUTTI_EXPECT(dead.code != errc::success);
  if (world.rank() == 1) {
    co_await pair.send(17, 0);
    co_return;
  }
  co_await from_pair;
  TUTTI_EXPECT(x == 17);
}

}  // namespace

TEST_CASE("groups: split orders by key, then by rank") {
  for (const int ranks : {1, 2, 3, 5}) on_each_transport(ranks, odd_and_even);
}
TEST_CASE("groups: non-members get an empty handle, members the order of the list") {
  for (const int ranks : {2, 3, 4}) on_each_transport(ranks, not_a_member);
}
TEST_CASE("groups: communicators never receive each other's messages") { on_each_transport(3, apart); }
TEST_CASE("groups: made concurrently from several communicators") {
  for (const int ranks : {2, 4}) on_each_transport(ranks, at_once);
}
TEST_CASE("groups: messages may arrive before the communicator exists") { on_each_transport(3, ahead); }
TEST_CASE("groups: a receive from any rank waits for members only") {
  on_each_transport(3, receives_from_any_that_is_left);
}
TEST_CASE("groups: the end of non-members does not end a receive from any rank") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    const std::vector<failure> ends = failures_of(3, over(transport), dies_outside);
    CHECK(ends[0].text == "");
    CHECK(ends[1].text == "");
    CHECK(ends[2].says("gives up"));
  }
}
TEST_CASE("groups: invalid lists") { on_each_transport(2, wrong_lists); }
TEST_CASE("groups: a failed group does not affect its parent") { on_each_transport(3, failing_part); }

TEST_CASE("topology: hosts are numbered by their lowest rank") {
  const std::vector<int> hosts = {7, 2, 7, 2, 9};
  const comm::topology t(hosts, 3);
  CHECK(t.hosts() == 3);
  CHECK(t.hierarchy());
  CHECK_FALSE(t.even);
  CHECK(t.host_of == std::vector<int>{0, 1, 0, 1, 2});
  CHECK(t.leaders == std::vector<int>{0, 1, 4});
  CHECK(t.local == std::vector<int>{1, 3});
  CHECK(t.local_rank == 1);
  CHECK(t.host == 1);
  const std::vector<int> even = {1, 0, 1, 0};
  const comm::topology e(even, 2);
  CHECK(e.even);
  CHECK(e.column == std::vector<int>{2, 3});
  const std::vector<int> alone = {1, 0};
  CHECK_FALSE(comm::topology(alone, 0).hierarchy());
  const std::vector<int> together = {1, 1};
  CHECK_FALSE(comm::topology(together, 0).hierarchy());
}
