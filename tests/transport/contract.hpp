// SPDX-License-Identifier: Apache-2.0
// What every transport promises to what is above it. The test of a transport has one line:
//
//   TRANSPORT_CONTRACT("tcp", tcp_way)
//
//   struct tcp_way {
//     using transport = tcp::tcp_transport;
//     static constexpr std::size_t eager_limit = ...;  // bytes of the longest eager frame
//     static constexpr std::size_t too_much = ...;     // bytes of data that do not leave before the receiver reads
//     static std::string absent();                     // why it cannot be tested here; empty: it can
//   };
#pragma once

#include "support/contains.hpp"
#include "support/run_task.hpp"
#include "support/skip.hpp"
#include "transport/tcp_fixture.hpp"

#include <algorithm>
#include <string>

namespace transport_contract {

using namespace tcp_test;
using tutti::test::contains;

template <class Way>
using ranks_by = ranks_over<typename Way::transport>;

// Only data have transfer ids: not every transport carries those of messages.
template <class Way>
void arrives_in_order() {
  ranks_by<Way> world(2);
  world.open();
  messages sent[2];
  std::vector<std::size_t> sizes = {0, 1, 31, 32, 33, 47, 48, 49, 63, 64, 65, 4095, 4096};
  for (std::size_t size = 0; size <= Way::eager_limit; size += std::max<std::size_t>(97, size / 20))
    sizes.push_back(size);
  sizes.push_back(Way::eager_limit);
  for (int from = 0; from < 2; ++from)
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      message& m = add(sent[from], frame_kind::eager, pattern(sizes[i], static_cast<unsigned>(i)));
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
      CHECK(a.head.tag == static_cast<std::int32_t>(i) - 5);
      CHECK(a.head.context == 17);
      CHECK(a.payload == sent[1 - to][i]->bytes);
    }
}

template <class Way>
void lets_messages_pass_data() {
  ranks_by<Way> world(2);
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
  message note(frame_kind::eager, pattern(10, 9));
  note.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 2; }));
  CHECK_FALSE(sent.back()->finished);
  const auto received = [&](std::uint64_t id) { return world[1].up.rooms[id].received; };
  REQUIRE(world.drive([&] {
    return all_sent(sent) && received(100) == bytes && received(101) == bytes && received(102) == bytes;
  }));
  CHECK(std::memcmp(rooms[0].data(), sent[0]->bytes.data(), bytes) == 0);
  CHECK(std::memcmp(rooms[1].data(), sent[1]->bytes.data(), bytes) == 0);
  CHECK(std::memcmp(rooms[2].data(), sent[2]->bytes.data(), bytes / 2) == 0);
  // Nothing was written beyond the destination buffer.
  CHECK(rooms[0][bytes] == std::byte{0});
  CHECK(rooms[2][bytes / 2] == std::byte{0});
}

template <class Way>
void sends_nothing_that_was_cancelled() {
  ranks_by<Way> world(2);
  world.open();
  message one(frame_kind::eager, pattern(10, 1)), two(frame_kind::eager, pattern(20, 2));
  one.submit(world[0].to(1));
  two.submit(world[0].to(1));
  CHECK(world[0].to(1).cancel(one) == cancel_result::gone);
  CHECK(world[0].to(1).cancel(one) == cancel_result::gone);
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 1; }));
  CHECK(world[1].up.frames[0].payload == two.bytes);
  CHECK_FALSE(one.finished);
}

// For transports whose buffers are free as soon as a frame has been taken back.
template <class Way>
void takes_back_half_of_the_data() {
  ranks_by<Way> world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  std::vector<std::byte> room(Way::too_much, std::byte{0});
  world[1].up.rooms[1] = {room.data(), room.size()};
  const std::vector<std::byte> expected = pattern(room.size(), 1);
  message data(frame_kind::data, expected, 1);
  data.submit(world[0].to(1));
  REQUIRE(world.settle(0));  // the receiver reads nothing: no more leaves
  REQUIRE_FALSE(data.finished);
  world[0].to(1).cancel(data);
  data.bytes.clear();
  data.bytes.shrink_to_fit();
  message after(frame_kind::eager, pattern(1000, 2));
  after.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 2; }));
  CHECK(world[1].up.frames[1].payload == after.bytes);
  const std::size_t received = world[1].up.rooms[1].received;
  CHECK(received > 0);
  CHECK(received < room.size());
  CHECK(std::memcmp(room.data(), expected.data(), received) == 0);
  CHECK_FALSE(data.finished);
}

template <class Way>
void reports_a_death_once() {
  ranks_by<Way> world(3);
  world.open();
  REQUIRE(world.connect(0, 1));
  REQUIRE(world.connect(1, 0));
  message stuck(frame_kind::data, pattern(Way::too_much, 1), 1);
  stuck.submit(world[1].to(0));
  REQUIRE(world.settle(1));
  REQUIRE_FALSE(stuck.finished);
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
  message late(frame_kind::eager, pattern(5, 1));
  late.submit(world[1].to(0));
  CHECK_FALSE(late.finished);
  REQUIRE(world.drive({1}, [&] { return late.finished; }));
  CHECK_FALSE(late.sent);
  CHECK(world[1].up.closings == 1);
  CHECK_FALSE(world[1].up.peers[2].closed);
}

template <class Way>
void leaves_when_all_was_sent(int from, bool connected) {
  ranks_by<Way> world(2);
  world.open();
  if (connected) REQUIRE(world.connect(from, 1 - from));
  std::vector<std::byte> room(Way::too_much);
  world[1 - from].up.rooms[1] = {room.data(), room.size()};
  message unread(frame_kind::data, pattern(Way::too_much, 5), 2);
  if (connected) unread.submit(world[1 - from].to(from));
  messages sent;
  add(sent, frame_kind::data, pattern(Way::too_much, 1), 1).submit(world[from].to(1 - from));
  for (unsigned i = 0; i < 200; ++i)
    add(sent, frame_kind::eager, pattern(1000, i)).submit(world[from].to(1 - from));
  world[from].leave();
  REQUIRE(world.drive([&] { return world[from].has_left && world[1 - from].up.closings == 1; }));
  CHECK(all_sent(sent));
  CHECK(world[1 - from].up.frames.size() == (connected ? 201 : 200));
  CHECK(room == sent[0]->bytes);
  CHECK(world[1 - from].up.peers[from].why == errc::peer_left);
  CHECK(contains(world[1 - from].up.peers[from].text, "rank " + std::to_string(from)));
  CHECK(unread.finished == connected);
  // The transport has nothing left in the loop, so its io_context runs out of work.
  world[from].context.restart();
  world[from].context.run_for(limit);
  CHECK(world[from].context.stopped());
}

template <class Way>
void all_leave_at_once() {
  ranks_by<Way> world(3);
  world.open();
  for (int from = 0; from < 3; ++from)
    for (int to = 0; to < from; ++to) REQUIRE(world.connect(from, to));
  for (int i = 0; i < 3; ++i) world[i].leave();
  CHECK(world.drive([&] { return world[0].has_left && world[1].has_left && world[2].has_left; }));
}

template <class Way>
void leaves_by_its_deadline() {
  ranks_by<Way> world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  message stuck(frame_kind::data, pattern(Way::too_much, 1), 1);
  stuck.submit(world[0].to(1));
  world[0].leave(50ms);
  REQUIRE(world.drive({0}, [&] { return world[0].has_left; }));
  CHECK(stuck.finished);
  CHECK_FALSE(stuck.sent);
}

template <class Way>
void leaves_without_connections() {
  ranks_by<Way> world(2);
  world.open();
  world[0].leave();
  CHECK(world[0].has_left);
  world[0].transport->cut();
  world[1].transport->cut();
  world[1].transport->cut();
  message m(frame_kind::eager, pattern(5, 1));
  m.submit(world[1].to(0));
  CHECK_FALSE(m.linked());
}

template <class Way>
void wakes_sleeping_loops() {
  ranks_by<Way> world(2);
  constexpr unsigned rounds = 300;
  bool ok[2] = {false, false};
  const auto play = [&](int me) {
    world.open(me);
    auto& r = world[me];
    messages sent;
    bool good = true;
    for (unsigned i = 0; i < rounds && good; ++i) {
      if (me == 0) add(sent, frame_kind::eager, pattern(i, i)).submit(r.to(1));
      good = world.run(me, [&] { return r.up.frames.size() == i + 1; }) &&
             r.up.frames[i].payload == pattern(i, i);
      if (me == 1) add(sent, frame_kind::eager, pattern(i, i)).submit(r.to(0));
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

}  // namespace transport_contract

#define TRANSPORT_CASE(name, way, text, what)                                 \
  TEST_CASE(name ": " text) {                                                 \
    if (const std::string why = way::absent(); !why.empty()) TUTTI_SKIP(why); \
    transport_contract::what;                                                 \
  }
#define TRANSPORT_CONTRACT(name, way)                                                                    \
  TRANSPORT_CASE(name, way, "messages of all sizes arrive in order, both ways", arrives_in_order<way>()) \
  TRANSPORT_CASE(name, way, "long data arrive in the receiver's memory, and messages pass them",         \
                 lets_messages_pass_data<way>())                                                         \
  TRANSPORT_CASE(name, way, "frames cancelled before the connection exists are not sent",                \
                 sends_nothing_that_was_cancelled<way>())                                                \
  TRANSPORT_CASE(name, way, "a peer that dies is reported once, after the return of unsent frames",      \
                 reports_a_death_once<way>())                                                            \
  TRANSPORT_CASE(                                                                                        \
      name, way,                                                                                         \
      "leaving at once after sending loses nothing, even with unread data in the other direction",       \
      leaves_when_all_was_sent<way>(0, true))                                                            \
  TRANSPORT_CASE(name, way, "the lower rank sends what waits for its connection before it leaves",       \
                 leaves_when_all_was_sent<way>(0, false))                                                \
  TRANSPORT_CASE(name, way, "the higher rank sends what waits for its connection before it leaves",      \
                 leaves_when_all_was_sent<way>(1, false))                                                \
  TRANSPORT_CASE(name, way, "all leave at the same time", all_leave_at_once<way>())                      \
  TRANSPORT_CASE(name, way, "leaving does not wait beyond its deadline for a peer that does not read",   \
                 leaves_by_its_deadline<way>())                                                          \
  TRANSPORT_CASE(name, way,                                                                              \
                 "a transport without connections leaves at once, and cutting twice has no effect",      \
                 leaves_without_connections<way>())                                                      \
  TRANSPORT_CASE(name, way, "sleeping loops are woken by messages, and by leaving",                      \
                 wakes_sleeping_loops<way>())
