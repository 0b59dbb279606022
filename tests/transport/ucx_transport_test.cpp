// SPDX-License-Identifier: Apache-2.0
// Frames over UCX, the ends of ranks, and buffers that UCX still uses, over UCX's own transports. ctest runs it over
// several of them (UCX_TLS).
#include "transport/ucx/ucx_transport.hpp"

#include "support/contains.hpp"
#include "support/instrumented.hpp"
#include "support/run_task.hpp"
#include "support/skip.hpp"
#include "transport/tcp_fixture.hpp"

#include <atomic>
#include <thread>

namespace {

using namespace tcp_test;
namespace ucx = tutti::transport::ucx;
using tutti::test::contains;
using tutti::transport::redirect_result;

// Also of receives whose old place is not written any more.
using ucx_rank = rank_over<ucx::ucx_transport>;
using ucx_ranks = ranks_over<ucx::ucx_transport>;
using messages = std::vector<std::unique_ptr<message>>;

bool there_is_ucx() {
  try {
    tutti::base::ucx_library::of_this_process();
    return true;
  } catch (const tutti::error& e) {
    CHECK(contains(e.what(), "TUTTI_TRANSPORTS"));
    return false;
  }
}
// UCX patches the calls that a sanitizer watches, too.
#define NEEDS_UCX()                                                                     \
  if (tutti::test::instrumented) TUTTI_SKIP("UCX was not tried under a sanitizer yet"); \
  if (!there_is_ucx()) TUTTI_SKIP("there is no UCX here (apt-get install libucx0)")

message& add(messages& all, frame_kind kind, std::vector<std::byte> payload, std::uint64_t transfer_id) {
  all.push_back(std::make_unique<message>(kind, std::move(payload), transfer_id));
  return *all.back();
}
bool all_sent(const messages& all) {
  for (const auto& m : all)
    if (!m->finished || !m->sent) return false;
  return true;
}

constexpr std::size_t long_bytes = 24 * 1024 * 1024 + 17;

}  // namespace

TEST_CASE("ucx: messages of all sizes arrive in order, both ways") {
  NEEDS_UCX();
  ucx_ranks world(2);
  world.open();
  messages sent[2];
  std::vector<std::size_t> sizes = {
      0, 1, 63, 64, 65, 1000, 4096, ucx::eager_limit_bytes - 1, ucx::eager_limit_bytes};
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

TEST_CASE("ucx: long control frames arrive whole") {
  NEEDS_UCX();
  ucx_ranks world(2);
  world.open();
  messages sent;
  add(sent, frame_kind::fail, pattern(60'000, 1), 1).submit(world[0].to(1));
  add(sent, frame_kind::agree, pattern(1'000'000, 2), 2).submit(world[0].to(1));
  add(sent, frame_kind::eager, pattern(10, 3), 3).submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 3 && all_sent(sent); }));
  for (std::size_t i = 0; i < 3; ++i) CHECK(world[1].up.frames[i].payload == sent[i]->bytes);
}

TEST_CASE("ucx: a frame that leaves at once needs its buffer no more") {
  NEEDS_UCX();
  ucx_ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  std::size_t at_once = 0;
  for (unsigned i = 0; i < 1000; ++i) {
    std::vector<std::byte> bytes = pattern(i * 7, i);
    const frame head{.kind = frame_kind::eager, .length = bytes.size(), .transfer_id = i};
    if (!world[0].to(1).send_now(head, bytes.data())) break;
    std::fill(bytes.begin(), bytes.end(), std::byte{0xEE});
    ++at_once;
  }
  CHECK(at_once >= 50);
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 1 + at_once; }));
  for (unsigned i = 0; i < at_once; ++i) CHECK(world[1].up.frames[i + 1].payload == pattern(i * 7, i));
}

TEST_CASE("ucx: long data arrive in the receiver's memory, and messages pass them") {
  NEEDS_UCX();
  ucx_ranks world(2);
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
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 2; }));
  CHECK_FALSE(sent.back()->finished);
  constexpr std::size_t slices = (bytes + ucx::slice_bytes - 1) / ucx::slice_bytes;
  REQUIRE(world.drive([&] { return all_sent(sent) && world[1].up.data_frames == 3 * slices; }));
  CHECK(world[1].up.rooms[100].received == bytes);
  CHECK(std::memcmp(rooms[0].data(), sent[0]->bytes.data(), bytes) == 0);
  CHECK(std::memcmp(rooms[1].data(), sent[1]->bytes.data(), bytes) == 0);
  CHECK(std::memcmp(rooms[2].data(), sent[2]->bytes.data(), bytes / 2) == 0);
  // Nothing was written beyond the destination buffer.
  CHECK(rooms[0][bytes] == std::byte{0});
  CHECK(rooms[2][bytes / 2] == std::byte{0});
}

TEST_CASE("ucx: data without a destination are refused, and the sender goes on") {
  NEEDS_UCX();
  ucx_ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  message data(frame_kind::data, pattern(long_bytes, 1), 1);
  data.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return data.finished; }));
  CHECK(data.sent);
  message after(frame_kind::eager, pattern(10, 2), 2);
  after.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 2; }));
  CHECK(world[1].up.closings == 0);
}

TEST_CASE("ucx: frames cancelled before the connection exists are not sent") {
  NEEDS_UCX();
  ucx_ranks world(2);
  world.open();
  message one(frame_kind::eager, pattern(10, 1), 1);
  message two(frame_kind::eager, pattern(10, 2), 2);
  one.submit(world[0].to(1));
  two.submit(world[0].to(1));
  CHECK(world[0].to(1).cancel(one) == cancel_result::gone);
  CHECK(world[0].to(1).cancel(one) == cancel_result::gone);
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 1; }));
  CHECK(world[1].up.frames[0].head.transfer_id == 2);
  CHECK_FALSE(one.finished);
}

TEST_CASE("ucx: cancelled data drain, are then their owner's, and nothing is written after that") {
  NEEDS_UCX();
  ucx_ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  std::vector<std::byte> room(long_bytes, std::byte{0});
  world[1].up.rooms[1] = {room.data(), room.size()};
  const std::vector<std::byte> expected = pattern(long_bytes, 1);
  message data(frame_kind::data, expected, 1);
  data.submit(world[0].to(1));
  REQUIRE_FALSE(data.finished);
  REQUIRE(world.drive([&] { return world[1].up.data_frames >= 2; }));
  REQUIRE(world[0].to(1).cancel(data) == cancel_result::drains);
  CHECK_FALSE(data.finished);
  REQUIRE(world.drive([&] { return data.finished; }));
  CHECK_FALSE(data.sent);
  std::fill(data.bytes.begin(), data.bytes.end(), std::byte{0xEE});
  message after(frame_kind::eager, pattern(1000, 2), 2);
  after.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 2; }));
  const std::size_t received = world[1].up.rooms[1].received;
  CHECK(received > 0);
  CHECK(received < long_bytes);
  CHECK(received % ucx::slice_bytes == 0);
  CHECK(std::memcmp(room.data(), expected.data(), received) == 0);
  CHECK(std::all_of(room.begin() + static_cast<std::ptrdiff_t>(received), room.end(),
                    [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("ucx: a destination given up drains, and the data go to the new one") {
  NEEDS_UCX();
  ucx_ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  recorder& up = world[1].up;
  auto room = std::make_unique<std::vector<std::byte>>(long_bytes);
  up.rooms[1] = {room->data(), long_bytes};
  message data(frame_kind::data, pattern(long_bytes, 1), 1);
  data.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return up.data_frames >= 2; }));
  recorder::room& old = up.rooms[1];
  recorder::room& fresh = up.rooms[2];
  std::vector<std::byte> other(long_bytes);
  bool drains = false;
  REQUIRE(world.drive([&] {  // until a slice is being received
    if (drains) return true;
    // As the layer above: what has come, then what comes.
    std::memcpy(other.data(), room->data(), long_bytes);
    const auto result = world[1].to(0).redirect_destination(&old, {other.data(), long_bytes, &fresh});
    if (result == redirect_result::none) return data.finished;
    drains = result == redirect_result::drains;
    old.at = other.data();
    return true;
  }));
  if (drains) {
    REQUIRE(world.drive([&] { return up.released_owners.size() == 1; }));
    CHECK(up.released_owners[0] == &old);
  }
  std::fill(room->begin(), room->end(), std::byte{0xA5});
  REQUIRE(world.drive([&] { return data.finished && old.received + fresh.received >= long_bytes; }));
  CHECK(std::all_of(room->begin(), room->end(), [](std::byte b) { return b == std::byte{0xA5}; }));
  CHECK(other == data.bytes);
}

TEST_CASE("ucx: whoever must have a buffer back breaks the link to a peer that does nothing") {
  NEEDS_UCX();
  for (const bool sender : {true, false})
    for (const std::size_t come : {0, 2}) {
      CAPTURE(sender);
      CAPTURE(come);
      ucx_ranks world(2);
      world.open();
      REQUIRE(world.connect(0, 1));
      recorder& up = world[1].up;
      auto room = std::make_unique<std::vector<std::byte>>(long_bytes);
      up.rooms[1] = {room->data(), long_bytes};
      const std::vector<std::byte> expected = pattern(long_bytes, 1);
      message data(frame_kind::data, expected, 1);
      data.submit(world[0].to(1));
      REQUIRE(world.drive([&] { return up.data_frames >= come; }));
      // The other side is in the same thread, and does nothing meanwhile.
      if (sender) {
        REQUIRE(world[0].to(1).cancel(data) == cancel_result::drains);
        CHECK_FALSE(world[0].to(1).drain(data));
        // All that was on the way may have arrived: then nothing had to be broken.
        const bool broken =
            static_cast<ucx::ucx_link&>(world[0].to(1)).at() != ucx::ucx_link::phase::connected;
        CHECK((broken || come > 0));
        std::fill(data.bytes.begin(), data.bytes.end(), std::byte{0xEE});
        if (broken) {
          REQUIRE(world.drive([&] { return world[0].up.closings == 1 && up.closings == 1; }));
          CHECK(world[0].up.peers[1].why == errc::peer_failed);
          CHECK(contains(world[0].up.peers[1].text, "rank 1"));
        } else {
          message after(frame_kind::eager, pattern(10, 2), 2);
          after.submit(world[0].to(1));
          REQUIRE(world.drive([&] { return up.frames.size() == 2; }));
        }
        // Nothing that was reported as received is of the reused buffer.
        CHECK(std::memcmp(room->data(), expected.data(), up.rooms[1].received) == 0);
      } else {
        world[1].to(0).redirect_destination(&up.rooms[1], destination_buffer{});
        world[1].to(0).drain_destination(&up.rooms[1]);
        up.rooms.clear();
        std::fill(room->begin(), room->end(), std::byte{0xA5});
        REQUIRE(world.drive([&] { return data.finished; }));
        CHECK(std::all_of(room->begin(), room->end(), [](std::byte b) { return b == std::byte{0xA5}; }));
      }
    }
}

TEST_CASE("ucx: a peer that dies is reported once, after its last messages and the return of unsent frames") {
  NEEDS_UCX();
  ucx_ranks world(3);
  world.open();
  REQUIRE(world.connect(0, 1));
  message stuck(frame_kind::data, pattern(long_bytes, 1), 1);
  stuck.submit(world[1].to(0));
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
  message late(frame_kind::eager, pattern(5, 1), 9);
  late.submit(world[1].to(0));
  CHECK_FALSE(late.finished);
  REQUIRE(world.drive({1}, [&] { return late.finished; }));
  CHECK_FALSE(late.sent);
  CHECK(world[1].up.closings == 1);
  CHECK_FALSE(world[1].up.peers[2].closed);
}

TEST_CASE("ucx: leaving at once after sending loses nothing") {
  NEEDS_UCX();
  ucx_ranks world(2);
  world.open();
  int from = 0;
  SUBCASE("the lower rank") { from = 0; }
  SUBCASE("the higher rank") { from = 1; }
  std::vector<std::byte> room(long_bytes);
  world[1 - from].up.rooms[1] = {room.data(), room.size()};
  messages sent;
  add(sent, frame_kind::data, pattern(long_bytes, 1), 1).submit(world[from].to(1 - from));
  for (unsigned i = 0; i < 50; ++i)
    add(sent, frame_kind::eager, pattern(1000, i), i).submit(world[from].to(1 - from));
  world[from].leave();
  REQUIRE(world.drive([&] { return world[from].has_left && world[1 - from].up.closings == 1; }));
  CHECK(all_sent(sent));
  CHECK(world[1 - from].up.frames.size() == 50);
  CHECK(room == sent[0]->bytes);
  CHECK(world[1 - from].up.peers[from].why == errc::peer_left);
  // The transport has nothing left in the loop, so its io_context runs out of work.
  world[from].context.restart();
  world[from].context.run_for(limit);
  CHECK(world[from].context.stopped());
}

TEST_CASE("ucx: all leave at the same time") {
  NEEDS_UCX();
  ucx_ranks world(4);
  world.open();
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < from; ++to) REQUIRE(world.connect(from, to));
  for (int i = 0; i < 4; ++i) world[i].leave();
  CHECK(world.drive(
      [&] { return world[0].has_left && world[1].has_left && world[2].has_left && world[3].has_left; }));
}

TEST_CASE("ucx: both sides connect at once, again and again") {
  NEEDS_UCX();
  for (int again = 0; again < 10; ++again) {
    ucx_ranks world(2);
    world.open();
    messages sent;
    for (int from = 0; from < 2; ++from)
      for (unsigned i = 0; i < 5; ++i)
        add(sent, frame_kind::eager, pattern(100, i), i).submit(world[from].to(1 - from));
    REQUIRE(world.drive([&] { return world[0].up.frames.size() == 5 && world[1].up.frames.size() == 5; }));
    CHECK(world[0].up.closings + world[1].up.closings == 0);
  }
}

TEST_CASE("ucx: sleeping loops are woken by messages, and by leaving") {
  NEEDS_UCX();
  ucx_ranks world(2);
  constexpr unsigned rounds = 300;
  bool ok[2] = {false, false};
  const auto play = [&](int me) {
    world.open(me);
    ucx_rank& r = world[me];
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
  CHECK(world[0].loop.counters().parks < 20 * rounds);
}

TEST_CASE("ucx: two sides that take back what neither has begun to receive both end") {
  NEEDS_UCX();
  ucx_ranks world(2);
  std::atomic<int> submitted{0}, drained{0};
  bool ok[2] = {false, false};
  const auto play = [&](int me) {
    world.open(me);
    ucx_rank& r = world[me];
    message hello(frame_kind::refuse, {});
    hello.submit(r.to(1 - me));
    bool good = world.run(me, [&] { return r.up.frames.size() == 1 && hello.finished; });
    std::vector<std::byte> room(long_bytes);
    r.up.rooms[1] = {room.data(), room.size()};
    message data(frame_kind::data, pattern(long_bytes, 1), 1);
    data.submit(r.to(1 - me));
    for (++submitted; submitted < 2;) std::this_thread::yield();
    good = good && r.to(1 - me).cancel(data) == cancel_result::drains;
    r.to(1 - me).drain(data);
    std::fill(data.bytes.begin(), data.bytes.end(), std::byte{0xEE});
    // As a loop that goes on.
    for (++drained; drained < 2;) {
      r.context.restart();
      r.context.poll();
    }
    message after(frame_kind::eager, pattern(10, 2), 2);
    after.submit(r.to(1 - me));
    good = good && world.run(me, [&] { return r.up.frames.size() == 2; });
    const std::size_t received = r.up.rooms[1].received;
    const std::vector<std::byte> expected = pattern(long_bytes, 1);
    good = good && received == ucx::slices_in_flight * ucx::slice_bytes && r.up.closings == 0 &&
           std::memcmp(room.data(), expected.data(), received) == 0;
    r.leave();
    good = good && world.run(me, [&] { return r.has_left; });
    r.transport.reset();
    ok[me] = good;
  };
  for (const tutti::test::failure& f : tutti::test::run_threads(2, play)) CHECK(f.text.empty());
  CHECK(ok[0]);
  CHECK(ok[1]);
}
