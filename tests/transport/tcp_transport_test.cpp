// SPDX-License-Identifier: Apache-2.0
// Frames between connected ranks, and how connections end.
#include "transport/tcp/tcp_transport.hpp"

#include "transport/contract.hpp"

namespace {

using namespace tcp_test;

struct tcp_way {
  using transport = tcp::tcp_transport;
  static constexpr std::size_t eager_limit = tcp::eager_limit_bytes;
  static constexpr std::size_t too_much = 32 * 1024 * 1024;  // more than the kernel's buffers hold
  static std::string absent() { return {}; }
};

}  // namespace

TRANSPORT_CONTRACT("tcp", tcp_way)
TRANSPORT_CASE("tcp", tcp_way, "data cancelled half way leave the stream intact and free the memory",
               takes_back_half_of_the_data<tcp_way>())

TEST_CASE("tcp: the first two frames of a round leave at once, the others in the next one") {
  ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  REQUIRE(world.settle(0));
  messages sent;
  const auto leaves_at_once = [&](frame_kind kind, std::size_t bytes = 100) {
    message& m = add(sent, kind, pattern(bytes, 1), sent.size());
    return world[0].to(1).submit(m) && !m.linked();
  };
  for (int again = 0; again < 2; ++again) {
    CHECK(leaves_at_once(frame_kind::eager));
    CHECK(leaves_at_once(frame_kind::data));
    for (int i = 0; i < 50; ++i) CHECK_FALSE(leaves_at_once(frame_kind::eager));
    REQUIRE(world.drive({0}, [&] { return sent.back()->finished; }));
  }
  CHECK(leaves_at_once(frame_kind::eager, 100'000));  // a long one alone
  CHECK_FALSE(leaves_at_once(frame_kind::eager));
  const auto came = [&] { return world[1].up.data_frames == 2 && world[1].up.frames.size() >= 2 * 51 + 2; };
  REQUIRE(world.drive(came));
  std::uint64_t last = 0;
  for (const arrived& a : world[1].up.frames) {
    CHECK(a.head.transfer_id >= last);
    last = a.head.transfer_id;
  }
}

TEST_CASE("tcp: a destination buffer abandoned in the middle of a stream is not written to afterwards") {
  ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  constexpr std::size_t bytes = 16 * 1024 * 1024;
  auto room = std::make_unique<std::vector<std::byte>>(bytes);
  world[1].up.rooms[1] = {room->data(), bytes};
  message data(frame_kind::data, pattern(bytes, 1), 1);
  data.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[1].up.data_frames > 3; }));
  world[1].to(0).redirect_destination(&world[1].up.rooms[1], destination_buffer{});
  world[1].up.rooms.clear();
  room.reset();
  REQUIRE(world.drive([&] { return data.finished; }));
  message after(frame_kind::eager, pattern(10, 2), 2);
  after.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 2; }));
  CHECK(world[1].up.data_frames == bytes / tcp::slice_bytes);
}

TEST_CASE("tcp: a slow reader makes the sender sleep, not spin, and gets everything") {
  ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  constexpr std::size_t bytes = 48 * 1024 * 1024;
  std::vector<std::byte> room(bytes);
  world[1].up.rooms[1] = {room.data(), bytes};
  message data(frame_kind::data, pattern(bytes, 3), 1);
  data.submit(world[0].to(1));
  REQUIRE(world.settle(0));
  REQUIRE_FALSE(data.finished);
  // Blocked: the loop has nothing to run until the kernel has space.
  std::size_t handlers = 0;
  for (int i = 0; i < 2000; ++i) {
    world[0].context.restart();
    handlers += world[0].context.poll();
  }
  CHECK(handlers <= 2);
  // Now the receiver reads, with pauses in which the kernel's buffers fill again and again.
  const std::uint64_t turns = world[0].loop.counters().turns;
  while (!data.finished || world[1].up.rooms[1].received < bytes) {
    const std::size_t before = world[1].up.data_frames;
    REQUIRE(world.drive({1}, [&] { return world[1].up.data_frames > before || data.finished; }));
    REQUIRE(world.settle(0));
    if (data.finished) {
      REQUIRE(world.drive([&] { return world[1].up.rooms[1].received == bytes; }));
    }
  }
  CHECK(world[0].loop.counters().turns - turns < 5000);
  CHECK(std::memcmp(room.data(), data.bytes.data(), bytes) == 0);
}

TEST_CASE("tcp: messages that a peer had sent before it died are delivered before its end") {
  ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  messages sent;
  for (unsigned i = 0; i < 100; ++i) add(sent, frame_kind::eager, pattern(1000, i), i).submit(world[0].to(1));
  REQUIRE(world.drive({0}, [&] { return all_sent(sent); }));
  // Like the kernel for a killed process: what was sent arrives, then the end.
  static_cast<tcp::tcp_link&>(world[0].to(1)).drop();
  REQUIRE(world.drive({1}, [&] { return world[1].up.closings == 1; }));
  CHECK(world[1].up.frames.size() == 101);
  CHECK(world[1].up.peers[0].why == errc::peer_failed);
}
