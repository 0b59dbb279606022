// SPDX-License-Identifier: Apache-2.0
// Frames over MPI, and the ends of ranks, on an MPI that does anything that MPI allows (mpi_fabric.hpp).
#include "transport/mpi/mpi_transport.hpp"

#include "support/contains.hpp"
#include "transport/mpi_fabric.hpp"
#include "transport/tcp_fixture.hpp"

namespace {

namespace mpi = tutti::transport::mpi;
using tcp_test::limit;
using tcp_test::message;
using tcp_test::pattern;
using tcp_test::recorder;
using tutti::errc;
using tutti::transport::frame_kind;
namespace core = tutti::core;

struct rank {
  rank(mpi_test::fabric& f, int number, int size)
      : wire(f.calls_of(number), mpi_test::fabric::world, size),
        transport(std::make_unique<mpi::mpi_transport>(loop, wire)) {
    info.rank = number;
    info.size = size;
    for (int i = 0; i < size; ++i) {
      core::endpoint_record record;
      record.rank = i;
      record.host = "host";
      record.pid = 1000 + i;
      info.peers.learn(record);
    }
  }
  tutti::transport::link& to(int peer) { return transport->link_to(peer); }
  void leave(std::chrono::milliseconds within = limit) {
    leaving.start(
        transport->leave(core::clock::now() + within),
        [](void* self, std::exception_ptr failure) noexcept {
          CHECK(!failure);
          static_cast<rank*>(self)->has_left = true;
        },
        this);
    up.finished = true;
  }

  boost::asio::io_context context{1};
  core::loop loop{context};
  recorder up;
  core::world_info info;
  mpi::wire wire;
  std::unique_ptr<mpi::mpi_transport> transport;
  core::running_task leaving;
  bool has_left = false;
};

struct ranks {
  explicit ranks(int size) : fabric(size) {
    for (int i = 0; i < size; ++i) all.push_back(std::make_unique<rank>(fabric, i, size));
    for (auto& r : all) r->transport->open(r->info, r->up);
  }
  rank& operator[](int i) { return *all[static_cast<std::size_t>(i)]; }
  // Runs these ranks, or all, alternately until `done()`. Returns false at the limit.
  template <class Done>
  bool drive(const std::vector<int>& who, Done done) {
    const auto until = core::clock::now() + limit;
    while (!done()) {
      if (core::clock::now() > until) return false;
      for (const int i : who) {
        (*this)[i].context.restart();
        (*this)[i].context.poll();
      }
    }
    return true;
  }
  template <class Done>
  bool drive(Done done) {
    std::vector<int> everyone;
    for (std::size_t i = 0; i < all.size(); ++i) everyone.push_back(static_cast<int>(i));
    return drive(everyone, done);
  }

  mpi_test::fabric fabric;
  std::vector<std::unique_ptr<rank>> all;
};

using tutti::test::contains;

bool all_finished(const std::vector<std::unique_ptr<message>>& all) {
  for (const auto& m : all)
    if (!m->finished) return false;
  return true;
}

}  // namespace

TEST_CASE("mpi: messages of all sizes arrive in order, whether MPI buffers them or not") {
  for (const std::size_t buffered : {~std::size_t{0}, std::size_t{1000}, std::size_t{0}}) {
    CAPTURE(buffered);
    ranks world(3);
    world.fabric.buffer_up_to(buffered);
    std::vector<std::unique_ptr<message>> sent;
    const std::vector<std::size_t> sizes = {0, 1, 63, 64, 65, 1000, 4031, 4032, 4033, 16'384};
    std::size_t count = 0;
    for (unsigned round = 0; round < 20; ++round)
      for (const std::size_t size : sizes) {
        for (const int from : {1, 2}) {
          sent.push_back(std::make_unique<message>(frame_kind::eager, pattern(size, round), count));
          sent.back()->submit(world[from].to(0));
        }
        ++count;
      }
    REQUIRE(world.drive([&] { return world[0].up.frames.size() == 2 * count && all_finished(sent); }));
    std::uint64_t next[3] = {};
    for (const tcp_test::arrived& a : world[0].up.frames) {
      CHECK(a.head.transfer_id == next[a.peer]);
      CHECK(a.payload ==
            pattern(sizes[next[a.peer] % sizes.size()], static_cast<unsigned>(next[a.peer] / sizes.size())));
      ++next[a.peer];
    }
  }
}

TEST_CASE("mpi: messages pass long data, which arrive in place, and MPI never reads the sender's memory") {
  ranks world(2);
  world.fabric.buffer_up_to(100);
  constexpr std::size_t bytes = 6 * 1024 * 1024 + 17;
  std::vector<std::byte> room(bytes, std::byte{0});
  world[1].up.rooms[1] = {room.data(), bytes};
  message data(frame_kind::data, pattern(bytes, 1), 1);
  data.submit(world[0].to(1));
  REQUIRE_FALSE(data.finished);
  message note(frame_kind::eager, pattern(10, 9), 7);
  note.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 1; }));
  CHECK_FALSE(data.finished);
  REQUIRE(world.drive([&] { return data.finished; }));
  const std::vector<std::byte> expected = pattern(bytes, 1);
  // MPI has not read all of it yet. It reads copies.
  std::fill(data.bytes.begin(), data.bytes.end(), std::byte{0xEE});
  REQUIRE(world.drive([&] { return world[1].up.rooms[1].received == bytes; }));
  CHECK(room == expected);
}

TEST_CASE("mpi: a cancelled message is not sent, and its memory is free at once") {
  ranks world(2);
  world.fabric.buffer_up_to(0);
  constexpr std::size_t bytes = 8 * 1024 * 1024;
  std::vector<std::byte> room(bytes, std::byte{0});
  world[1].up.rooms[1] = {room.data(), bytes};
  auto data = std::make_unique<message>(frame_kind::data, pattern(bytes, 1), 1);
  data->submit(world[0].to(1));
  REQUIRE_FALSE(data->finished);
  world[0].to(1).cancel(*data);
  CHECK_FALSE(data->finished);
  data.reset();
  message after(frame_kind::eager, pattern(100, 2), 2);
  after.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 1; }));
  const std::size_t received = world[1].up.rooms[1].received;
  CHECK(received > 0);
  CHECK(received < bytes);
  const std::vector<std::byte> expected = pattern(bytes, 1);
  CHECK(std::equal(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(received), expected.begin()));
}

TEST_CASE("mpi: messages whose receives complete late still arrive in order") {
  ranks world(2);
  world.fabric.hold_receives(true);
  message one(frame_kind::eager, pattern(10'000, 1), 1);
  message two(frame_kind::eager, pattern(10, 2), 2);
  one.submit(world[0].to(1));
  two.submit(world[0].to(1));
  for (int i = 0; i < 100; ++i) world.drive({1}, [n = 0]() mutable { return n++ > 0; });
  CHECK(world[1].up.frames.empty());
  world.fabric.hold_receives(false);
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 2; }));
  CHECK(world[1].up.frames[0].head.transfer_id == 1);
  CHECK(world[1].up.frames[1].payload == two.bytes);
}

TEST_CASE("mpi: all ranks leave at the same time, and nothing is left over") {
  ranks world(3);
  world.fabric.buffer_up_to(64);
  std::vector<std::unique_ptr<message>> sent;
  for (int from = 0; from < 3; ++from)
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      sent.push_back(std::make_unique<message>(frame_kind::eager, pattern(5000, 1), 1));
      sent.back()->submit(world[from].to(to));
    }
  REQUIRE(world.drive([&] {
    return world[0].up.frames.size() == 2 && world[1].up.frames.size() == 2 && world[2].up.frames.size() == 2;
  }));
  for (int i = 0; i < 3; ++i) world[i].leave();
  REQUIRE(world.drive([&] { return world[0].has_left && world[1].has_left && world[2].has_left; }));
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(world[i].wire.open());
    CHECK(world[i].wire.ended_in_order());
    CHECK_FALSE(world[i].wire.sending());
  }
}

TEST_CASE("mpi: messages sent before leaving arrive before the leave is reported") {
  ranks world(2);
  world.fabric.buffer_up_to(0);
  constexpr std::size_t bytes = 3 * 1024 * 1024;
  std::vector<std::byte> room(bytes, std::byte{0});
  world[1].up.rooms[1] = {room.data(), bytes};
  message data(frame_kind::data, pattern(bytes, 1), 1);
  data.submit(world[0].to(1));
  world[0].leave();
  REQUIRE(world.drive([&] { return world[0].has_left; }));
  CHECK(world[1].up.closings == 1);
  CHECK(world[1].up.peers[0].why == errc::peer_left);
  CHECK(room == data.bytes);
  message late(frame_kind::eager, pattern(10, 1), 1);
  late.submit(world[1].to(0));
  REQUIRE(world.drive([&] { return late.finished; }));
  CHECK_FALSE(late.sent);
  // The last rank has no peers left.
  world[1].leave();
  REQUIRE(world.drive({1}, [&] { return world[1].has_left; }));
}

TEST_CASE("mpi: leaving does not wait beyond its deadline for a silent peer") {
  ranks world(2);
  world.fabric.buffer_up_to(0);
  message lost(frame_kind::eager, pattern(10'000, 1), 1);
  lost.submit(world[0].to(1));
  world[0].leave(std::chrono::milliseconds(30));
  REQUIRE(world.drive({0}, [&] { return world[0].has_left; }));
  CHECK(world[0].wire.sending());  // MPI reads the memory, which belongs to the wire
  CHECK(world[0].wire.ended_in_order());
}

TEST_CASE("mpi: a rank that is cut off is reported as failed, after its last messages") {
  ranks world(2);
  message last(frame_kind::fail, pattern(30, 1), 1);
  last.submit(world[0].to(1));
  message queued(frame_kind::data, pattern(4 * 1024 * 1024, 1), 1);
  world.fabric.buffer_up_to(100);
  queued.submit(world[0].to(1));
  CHECK(world[0].transport->has_queue());
  world[0].up.finished = true;
  world[0].transport->cut();
  CHECK_FALSE(queued.finished);
  CHECK_FALSE(world[0].wire.ended_in_order());
  REQUIRE(world.drive({1}, [&] { return world[1].up.closings == 1; }));
  CHECK(world[1].up.frames.size() == 1);
  CHECK(world[1].up.peers[0].why == errc::peer_failed);
  CHECK(contains(world[1].up.peers[0].text,
                 "rank 0 (host host, pid 1000) ended its world without taking leave"));
}

TEST_CASE("mpi: a rank is told of a link that its peer breaks off, and both leave without waiting") {
  ranks world(2);
  message hello(frame_kind::eager, pattern(10, 1), 1);
  hello.submit(world[1].to(0));
  REQUIRE(world.drive([&] { return world[0].up.frames.size() == 1; }));
  bool told_while_leaving = false;
  SUBCASE("in the middle of its world") {}
  SUBCASE("which has begun to leave") {
    told_while_leaving = true;
    world[1].leave();
  }
  world[0].to(1).give_up(errc::resources, "too many messages wait");
  REQUIRE(world.drive([&] { return world[0].up.closings == 1; }));
  if (!told_while_leaving) {
    CHECK(world[0].up.peers[1].why == errc::resources);
    REQUIRE(world.drive([&] { return world[1].up.closings == 1; }));
    CHECK(world[1].up.peers[0].why == errc::peer_failed);
    CHECK(contains(world[1].up.peers[0].text, "broke off the connection"));
    world[1].leave();
  }
  world[0].leave();
  REQUIRE(world.drive([&] { return world[0].has_left && world[1].has_left; }));
  for (int i = 0; i < 2; ++i) CHECK(world[i].wire.ended_in_order());
}

TEST_CASE("mpi: an error of an MPI call ends its link, from the loop") {
  ranks world(3);
  world.fabric.break_sends(0, 2, 15);
  message broken(frame_kind::eager, pattern(10, 1), 1);
  message fine(frame_kind::eager, pattern(10, 1), 1);
  broken.submit(world[0].to(2));
  CHECK(world[0].up.closings == 0);
  fine.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[0].up.closings == 1 && world[1].up.frames.size() == 1; }));
  CHECK(broken.finished);
  CHECK_FALSE(broken.sent);
  CHECK(world[0].up.peers[2].why == errc::peer_failed);
  CHECK(contains(world[0].up.peers[2].text,
                 "MPI could not send to rank 2 (host host, pid 1002): fabric error 15"));
}

TEST_CASE("mpi: when receiving fails, all peers are lost") {
  ranks world(3);
  world.fabric.break_finding(0, 16);
  REQUIRE(world.drive([&] { return world[0].up.closings == 2; }));
  CHECK(contains(world[0].up.peers[1].text, "MPI lost rank 1 (host host, pid 1001): fabric error 16"));
  CHECK(world[0].up.peers[2].why == errc::peer_failed);
}

TEST_CASE("mpi: a message that is no frame ends the link with a protocol error") {
  ranks world(2);
  const std::vector<std::byte> nonsense = pattern(100, 1);
  world[0].wire.send(1, mpi::frame_tag, nonsense, {});
  REQUIRE(world.drive([&] { return world[1].up.closings == 1; }));
  CHECK(world[1].up.peers[0].why == errc::protocol);
  ranks another(2);
  another[1].wire.send(0, mpi::frame_tag, {}, {});
  REQUIRE(another.drive([&] { return another[0].up.closings == 1; }));
  CHECK(contains(another[0].up.peers[1].text, "a message too short for a frame"));
}

TEST_CASE("mpi: a sleeping loop polls in time, and hardly uses the processor while it waits") {
  ranks world(2);
  rank& sleeper = world[1];
  sleeper.loop.engine().begin_wait();
  const auto until = core::clock::now() + std::chrono::milliseconds(300);
  sleeper.context.restart();
  while (core::clock::now() < until) sleeper.context.run_one_until(until);
  // After the first few polls they are a millisecond apart; many more mean that the loop does not sleep.
  const std::uint64_t parks = sleeper.loop.counters().parks;
  CHECK(parks >= 3);
  CHECK(parks < 1000);
  message m(frame_kind::eager, pattern(10, 1), 1);
  m.submit(world[0].to(1));
  const auto end = core::clock::now() + limit;
  while (sleeper.up.frames.empty() && core::clock::now() < end) sleeper.context.run_one_until(end);
  CHECK(sleeper.up.frames.size() == 1);
  sleeper.loop.engine().end_wait();
}
