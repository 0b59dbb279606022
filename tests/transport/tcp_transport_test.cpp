// SPDX-License-Identifier: Apache-2.0
// Frames between connected ranks, and how connections end.
#include "transport/tcp/tcp_transport.hpp"
#include "support/run_task.hpp"

#include "support/contains.hpp"
#include "transport/tcp_fixture.hpp"

#include <thread>

namespace {

using namespace tcp_test;

using tutti::test::contains;

using messages = std::vector<std::unique_ptr<message>>;

message& add(messages& all, frame_kind kind, std::vector<std::byte> payload, std::uint64_t transfer_id) {
  all.push_back(std::make_unique<message>(kind, std::move(payload), transfer_id));
  return *all.back();
}

bool all_sent(const messages& all) {
  for (const auto& m : all)
    if (!m->finished || !m->sent) return false;
  return true;
}

}  // namespace

TEST_CASE("tcp: messages of all sizes arrive in order, both ways") {
  ranks world(2);
  world.open();
  messages sent[2];
  std::vector<std::size_t> sizes = {0, 1, 63, 64, 65, 1000, 4096, 40'000, 65'472, 65'473, 65'535, 65'536};
  for (std::size_t size = 0; size < 3000; size += 37) sizes.push_back(size);
  for (int from = 0; from < 2; ++from)
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      message& m = add(sent[from], frame_kind::eager, pattern(sizes[i], static_cast<unsigned>(i)), i);
      m.head.tag = static_cast<std::int32_t>(i) - 5;
      m.head.context = 17;
      m.submit(world[from].to(1 - from));
    }
  REQUIRE(world.drive([&] {
    return world[0].up.frames.size() == sizes.size() && world[1].up.frames.size() == sizes.size() &&
           all_sent(sent[0]) && all_sent(sent[1]);
  }));
  for (int to = 0; to < 2; ++to)
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const arrived& a = world[to].up.frames[i];
      CHECK(a.peer == 1 - to);
      CHECK(a.head.transfer_id == i);
      CHECK(a.head.tag == static_cast<std::int32_t>(i) - 5);
      CHECK(a.head.context == 17);
      CHECK(a.payload == sent[1 - to][i]->bytes);
    }
}

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

TEST_CASE("tcp: long data arrive in the receiver's memory, and messages pass them") {
  ranks world(2);
  world.open();
  constexpr std::size_t bytes = 6 * 1024 * 1024 + 17;
  std::vector<std::vector<std::byte>> rooms(3, std::vector<std::byte>(bytes + 1, std::byte{0}));
  messages sent;
  for (unsigned i = 0; i < 3; ++i) {
    world[1].up.rooms[100 + i] = {rooms[i].data(), i == 2 ? bytes / 2 : bytes};
    add(sent, frame_kind::data, pattern(bytes, i), 100 + i);
  }
  REQUIRE(world.connect(0, 1));
  for (auto& m : sent) m->submit(world[0].to(1));
  REQUIRE_FALSE(sent.back()->finished);
  message note(frame_kind::eager, pattern(10, 9), 7);
  note.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return note.finished; }));
  CHECK_FALSE(sent.back()->finished);
  REQUIRE(world.drive([&] {
    return all_sent(sent) && world[1].up.rooms[100].received == bytes &&
           world[1].up.rooms[101].received == bytes && world[1].up.rooms[102].received == bytes;
  }));
  CHECK(std::memcmp(rooms[0].data(), sent[0]->bytes.data(), bytes) == 0);
  CHECK(std::memcmp(rooms[1].data(), sent[1]->bytes.data(), bytes) == 0);
  CHECK(std::memcmp(rooms[2].data(), sent[2]->bytes.data(), bytes / 2) == 0);
  // Nothing was written beyond the destination buffer.
  CHECK(rooms[0][bytes] == std::byte{0});
  CHECK(rooms[2][bytes / 2] == std::byte{0});
}

TEST_CASE("tcp: frames cancelled before the connection exists are not sent") {
  ranks world(2);
  world.open();
  message one(frame_kind::eager, pattern(10, 1), 1);
  message two(frame_kind::eager, pattern(10, 2), 2);
  one.submit(world[0].to(1));
  two.submit(world[0].to(1));
  world[0].to(1).cancel(one);
  world[0].to(1).cancel(one);
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 1; }));
  CHECK(world[1].up.frames[0].head.transfer_id == 2);
  CHECK_FALSE(one.finished);
}

TEST_CASE("tcp: data cancelled half way leave the stream intact and free the memory") {
  ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  constexpr std::size_t bytes = 32 * 1024 * 1024;
  std::vector<std::byte> room(bytes, std::byte{0});
  world[1].up.rooms[1] = {room.data(), bytes};
  const std::vector<std::byte> expected = pattern(bytes, 1);
  message data(frame_kind::data, expected, 1);
  data.submit(world[0].to(1));
  REQUIRE(world.settle(0));  // the receiver reads nothing: the kernel is full
  REQUIRE_FALSE(data.finished);
  world[0].to(1).cancel(data);
  data.bytes.clear();
  data.bytes.shrink_to_fit();
  message after(frame_kind::eager, pattern(1000, 2), 2);
  after.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 2; }));
  CHECK(world[1].up.frames[1].payload == after.bytes);
  const std::size_t received = world[1].up.rooms[1].received;
  CHECK(received > 0);
  CHECK(received < bytes);
  CHECK(std::memcmp(room.data(), expected.data(), received) == 0);
  CHECK_FALSE(data.finished);
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

TEST_CASE("tcp: a peer that dies is reported once, after its last messages and the return of unsent frames") {
  ranks world(3);
  world.open();
  REQUIRE(world.connect(0, 1));
  REQUIRE(world.connect(1, 0));
  message stuck(frame_kind::data, pattern(32 * 1024 * 1024, 1), 1);
  stuck.submit(world[1].to(0));
  REQUIRE(world.settle(1));
  REQUIRE_FALSE(stuck.finished);
  message last(frame_kind::eager, pattern(5000, 7), 7);
  last.submit(world[0].to(1));
  REQUIRE(last.finished);
  world[0].transport->cut();
  world[0].up.finished = true;
  REQUIRE(world.drive([&] { return world[1].up.closings == 1; }));
  CHECK(stuck.finished);
  CHECK_FALSE(stuck.sent);
  CHECK(world[1].to(0).closed());
  const recorder::state& s = world[1].up.peers[0];
  CHECK(s.why == errc::peer_failed);
  CHECK(contains(s.text, "rank 0 (host host0, pid 1000)"));
  CHECK(contains(s.text, "died or was killed"));
  // The loop returns a frame for a closed link.
  message late(frame_kind::eager, pattern(5, 1), 9);
  late.submit(world[1].to(0));
  CHECK_FALSE(late.finished);
  REQUIRE(world.drive({1}, [&] { return late.finished; }));
  CHECK_FALSE(late.sent);
  CHECK(world[1].up.closings == 1);
  CHECK_FALSE(world[1].up.peers[2].closed);
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

TEST_CASE("tcp: leaving at once after sending loses nothing, even with unread data in the other direction") {
  ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  constexpr std::size_t bytes = 24 * 1024 * 1024;
  std::vector<std::byte> room(bytes);
  world[1].up.rooms[1] = {room.data(), bytes};
  message unread(frame_kind::data, pattern(bytes, 5), 2);
  unread.submit(world[1].to(0));
  REQUIRE(world.settle(1));
  messages sent;
  add(sent, frame_kind::data, pattern(bytes, 1), 1).submit(world[0].to(1));
  for (unsigned i = 0; i < 50; ++i) add(sent, frame_kind::eager, pattern(1000, i), i).submit(world[0].to(1));
  world[0].leave();
  REQUIRE(world.drive([&] { return world[0].has_left && world[1].up.closings == 1; }));
  CHECK(all_sent(sent));
  CHECK(world[1].up.frames.size() == 51);
  CHECK(world[1].up.rooms[1].received == bytes);
  CHECK(std::memcmp(room.data(), sent[0]->bytes.data(), bytes) == 0);
  CHECK(world[1].up.peers[0].why == errc::peer_left);
  CHECK(contains(world[1].up.peers[0].text, "rank 0 (host host0, pid 1000)"));
  CHECK(unread.finished);
  // The transport has nothing left in the loop, so its io_context runs out of work.
  world[0].context.restart();
  world[0].context.run_for(limit);
  CHECK(world[0].context.stopped());
}

TEST_CASE("tcp: frames that wait for their connection are sent before the transport leaves") {
  ranks world(2);
  world.open();
  messages sent;
  int from = 0;
  SUBCASE("the lower rank") { from = 0; }
  SUBCASE("the higher rank") { from = 1; }
  for (unsigned i = 0; i < 20; ++i)
    add(sent, frame_kind::eager, pattern(1000, i), i).submit(world[from].to(1 - from));
  world[from].leave();
  REQUIRE(world.drive([&] { return world[from].has_left; }));
  CHECK(all_sent(sent));
  REQUIRE(world.drive([&] { return world[1 - from].up.closings == 1; }));
  CHECK(world[1 - from].up.frames.size() == 20);
  CHECK(world[1 - from].up.peers[from].why == errc::peer_left);
}

TEST_CASE("tcp: all leave at the same time") {
  ranks world(3);
  world.open();
  for (int from = 0; from < 3; ++from)
    for (int to = 0; to < from; ++to) REQUIRE(world.connect(from, to));
  for (int i = 0; i < 3; ++i) world[i].leave();
  CHECK(world.drive([&] { return world[0].has_left && world[1].has_left && world[2].has_left; }));
}

TEST_CASE("tcp: leaving does not wait beyond its deadline for a peer that does not read") {
  ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  message stuck(frame_kind::data, pattern(32 * 1024 * 1024, 1), 1);
  stuck.submit(world[0].to(1));
  world[0].leave(50ms);
  REQUIRE(world.drive({0}, [&] { return world[0].has_left; }));
  CHECK(stuck.finished);
  CHECK_FALSE(stuck.sent);
}

TEST_CASE("tcp: a transport without connections leaves at once, and cutting twice has no effect") {
  ranks world(2);
  world.open();
  world[0].leave();
  CHECK(world[0].has_left);
  world[0].transport->cut();
  world[1].transport->cut();
  world[1].transport->cut();
  message m(frame_kind::eager, pattern(5, 1), 9);
  m.submit(world[1].to(0));
  CHECK_FALSE(m.linked());
}

TEST_CASE("tcp: sleeping loops are woken by messages, and by leaving") {
  ranks world(2);
  constexpr unsigned rounds = 300;
  bool ok[2] = {false, false};
  const auto play = [&](int me) {
    world.open(me);
    rank& r = world[me];
    messages sent;
    bool good = true;
    for (unsigned i = 0; i < rounds && good; ++i) {
      if (me == 0) add(sent, frame_kind::eager, pattern(i, i), i).submit(r.to(1));
      good = world.run(me, [&] { return r.up.frames.size() == i + 1; }) &&
             r.up.frames[i].payload == pattern(i, i);
      if (me == 1) add(sent, frame_kind::eager, pattern(i, i), i).submit(r.to(0));
    }
    good = good && world.run(me, [&] { return all_sent(sent); });
    r.leave();
    good = good && world.run(me, [&] { return r.has_left; });
    r.transport.reset();
    ok[me] = good;
  };
  for (const tutti::test::failure& f : tutti::test::run_threads(2, play)) CHECK(f.text.empty());
  CHECK(ok[0]);
  CHECK(ok[1]);
  // One sleep and one wake-up per message, and only a few others.
  CHECK(world[0].loop.counters().parks < 20 * rounds);
}
