// SPDX-License-Identifier: Apache-2.0
// Frames between ranks that share memory, how they connect, and how connections end.
#include "transport/shm/shm_transport.hpp"

#include "transport/contract.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace {

using namespace tcp_test;
namespace shm = tutti::transport::shm;
using shm_ranks = ranks_over<shm::shm_transport>;

shm::shm_link& link_of(shm_ranks& world, int from, int to) {
  return static_cast<shm::shm_link&>(world[from].to(to));
}

using phase = shm::shm_link::phase;

bool is_open(const shm::shm_link& l) { return l.at() == phase::connected; }

using tutti::test::contains;

struct shm_way {
  using transport = shm::shm_transport;
  static constexpr std::size_t eager_limit = shm::eager_limit_bytes;
  static constexpr std::size_t too_much = 8 * 1024 * 1024 + 17;  // more than a channel holds
  static std::string absent() { return {}; }
};
constexpr std::size_t too_much = shm_way::too_much;

}  // namespace

TRANSPORT_CONTRACT("shm", shm_way)
TRANSPORT_CASE("shm", shm_way, "data cancelled half way leave the channel intact and free the memory",
               takes_back_half_of_the_data<shm_way>())

TEST_CASE("shm: frames of each kind keep all their fields") {
  shm_ranks world(2);
  world.open();
  messages sent;
  const frame_kind kinds[] = {frame_kind::eager,  frame_kind::rts,  frame_kind::cts,   frame_kind::refuse,
                              frame_kind::cancel, frame_kind::fail, frame_kind::notice};
  for (int round = 0; round < 3; ++round)
    for (const frame_kind kind : kinds) {
      const bool has_payload = kind == frame_kind::eager || kind == frame_kind::fail;
      message& m = add(sent, kind, pattern(has_payload ? (round == 2 ? 20'000 : 100) : 0, 3),
                       has_payload ? 0 : 0x1234567890abcdef);
      m.head.context = 40 + static_cast<std::uint32_t>(round);
      m.head.tag = 7;
      if (kind == frame_kind::rts) m.head.length = std::uint64_t{1} << 40;
      if (kind == frame_kind::cts || kind == frame_kind::cancel)
        m.head.other_transfer_id = 0xfedcba0987654321;
      if (round > 0 && kind != frame_kind::cts) m.head.fingerprint[15] = std::byte{9};
      m.submit(world[0].to(1));
    }
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == sent.size() && all_sent(sent); }));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    CAPTURE(i);
    const frame &in = world[1].up.frames[i].head, &out = sent[i]->head;
    CHECK(in.kind == out.kind);
    CHECK(in.context == out.context);
    CHECK(in.tag == out.tag);
    CHECK(in.length == out.length);
    CHECK(in.transfer_id == out.transfer_id);
    CHECK(in.other_transfer_id == out.other_transfer_id);
    CHECK(in.fingerprint == out.fingerprint);
    CHECK(world[1].up.frames[i].payload == sent[i]->bytes);
  }
}

TEST_CASE("shm: connections are made by the first frame, for both directions") {
  shm_ranks world(3);
  world.open();
  CHECK(link_of(world, 0, 1).at() == phase::idle);
  message first(frame_kind::eager, pattern(10, 1), 1);
  CHECK_FALSE(world[0].to(1).submit(first));
  CHECK(link_of(world, 0, 1).at() == phase::connecting);
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 1 && first.finished; }));
  CHECK(is_open(link_of(world, 0, 1)));
  CHECK(is_open(link_of(world, 1, 0)));
  CHECK(link_of(world, 0, 2).at() == phase::idle);
  // With space in the channel the link sends at once, in either direction.
  message there(frame_kind::eager, pattern(100, 2), 2), back(frame_kind::eager, pattern(100, 3), 3);
  CHECK(world[0].to(1).submit(there));
  CHECK_FALSE(there.linked());
  CHECK(world[1].to(0).submit(back));
  message data(frame_kind::data, pattern(1000, 1), 6);
  CHECK(world[0].to(1).submit(data));
  REQUIRE(world.drive([&] {
    return world[1].up.frames.size() == 2 && world[0].up.frames.size() == 1 && world[1].up.data_frames == 1;
  }));
}

TEST_CASE("shm: both ranks connect at once, and one connection results") {
  for (int round = 0; round < 20; ++round) {
    shm_ranks world(4);
    world.open();
    messages sent;
    for (unsigned i = 0; i < 3; ++i)
      for (int from = 0; from < 4; ++from)
        for (int to = 0; to < 4; ++to)
          if (from != to) add(sent, frame_kind::eager, pattern(50, i), 0).submit(world[from].to(to));
    REQUIRE(world.drive([&] {
      for (int i = 0; i < 4; ++i)
        if (world[i].up.frames.size() < 9) return false;
      return all_sent(sent);
    }));
    for (int i = 0; i < 4; ++i) {
      std::map<int, unsigned> next;
      for (const arrived& a : world[i].up.frames) CHECK(a.payload == pattern(50, next[a.peer]++));
      CHECK(world[i].up.frames.size() == 9);
      CHECK(world[i].up.closings == 0);
    }
  }
}

TEST_CASE("shm: a rank that sends much does not delay messages from others") {
  shm_ranks world(4);
  world.open();
  for (int from = 1; from < 4; ++from) REQUIRE(world.connect(from, 0));
  const std::size_t before = world[0].up.frames.size();
  constexpr std::size_t each = 100;
  messages sent;
  for (int from = 1; from < 4; ++from)
    for (unsigned i = 0; i < each; ++i)
      add(sent, frame_kind::eager, pattern(20, i), 0).submit(world[from].to(0));
  REQUIRE(all_sent(sent));  // all are in rank 0's memory
  REQUIRE(world.drive({0}, [&] { return world[0].up.frames.size() == before + 3 * each; }));
  std::array<int, 4> read{};
  for (std::size_t i = before; i < world[0].up.frames.size(); ++i) {
    ++read[static_cast<std::size_t>(world[0].up.frames[i].peer)];
    const auto [least, most] = std::minmax_element(read.begin() + 1, read.end());
    CHECK(*most - *least <= 32);
  }
}

TEST_CASE("shm: messages up to the eager limit arrive as one frame") {
  shm_ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  CHECK(world[0].to(1).sends_eagerly(nullptr, shm::eager_limit_bytes));
  message longest(frame_kind::eager, pattern(shm::eager_limit_bytes, 4), 0);
  CHECK(world[0].to(1).submit(longest));
  REQUIRE(world.drive([&] { return world[1].up.frames.size() == 2; }));
  CHECK(world[1].up.frames[1].payload == longest.bytes);
}

TEST_CASE("shm: while the parts of a message come, its destination can change") {
  shm_ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  recorder& up = world[1].up;
  messages sent;
  // More than a receiver reads at once, which stops between two parts of the last.
  constexpr std::size_t bytes = 60 * 1024;
  for (unsigned i = 0; i < 5; ++i)
    REQUIRE(world[0].to(1).submit(add(sent, frame_kind::eager, pattern(bytes, i), 0)));
  link_of(world, 1, 0).work();
  REQUIRE(up.peers[0].in_frame);
  recorder::state& from = up.peers[0];
  std::vector<std::byte> elsewhere(bytes);
  using tutti::transport::redirect_result;
  CHECK(world[1].to(0).redirect_destination(&elsewhere, {}) ==
        redirect_result::none);  // of none that arrives
  REQUIRE(world[1].to(0).redirect_destination(&from, {elsewhere.data(), bytes, &from}) ==
          redirect_result::moved);
  const std::vector<std::byte> untouched(bytes, std::byte{0xEE});
  from.buffer = untouched;
  REQUIRE(world.drive({1}, [&] { return up.frames.size() == 6; }));
  CHECK(elsewhere == sent[4]->bytes);
  CHECK(up.frames[5].payload == untouched);
  CHECK(up.frames[4].payload == sent[3]->bytes);
  CHECK(world[1].to(0).redirect_destination(&from, {}) == redirect_result::none);
}

TEST_CASE("shm: a slow reader makes the sender sleep, not spin, and gets everything") {
  shm_ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  std::vector<std::byte> room(too_much);
  world[1].up.rooms[1] = {room.data(), too_much};
  messages notes;
  message data(frame_kind::data, pattern(too_much, 3), 1);
  data.submit(world[0].to(1));
  for (unsigned i = 0; i < 500; ++i) add(notes, frame_kind::eager, pattern(500, i), 0).submit(world[0].to(1));
  REQUIRE(world.settle(0));
  REQUIRE_FALSE(data.finished);
  REQUIRE_FALSE(all_sent(notes));
  // Blocked: the loop has nothing to run until the receiver frees space.
  std::size_t handlers = 0;
  for (int i = 0; i < 2000; ++i) {
    world[0].context.restart();
    handlers += world[0].context.poll();
  }
  CHECK(handlers <= 2);
  // Now the receiver reads, with pauses in which the channel fills again and again.
  while (!data.finished || !all_sent(notes)) {
    const std::size_t before = world[1].up.data_frames + world[1].up.frames.size();
    REQUIRE(world.drive({1}, [&] { return world[1].up.data_frames + world[1].up.frames.size() > before; }));
    REQUIRE(world.settle(0));
  }
  REQUIRE(world.drive(
      [&] { return world[1].up.rooms[1].received == too_much && world[1].up.frames.size() == 501; }));
  CHECK(std::memcmp(room.data(), data.bytes.data(), too_much) == 0);
  for (unsigned i = 0; i < 500; ++i) CHECK(world[1].up.frames[i + 1].payload == notes[i]->bytes);
}

TEST_CASE("shm: messages that a peer had sent before it died are delivered before its end") {
  shm_ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  messages last;
  for (unsigned i = 0; i < 50; ++i) add(last, frame_kind::eager, pattern(1000, i)).submit(world[0].to(1));
  REQUIRE(all_sent(last));
  world[0].transport->cut();
  world[0].up.finished = true;
  REQUIRE(world.drive([&] { return world[1].up.closings == 1; }));
  CHECK(world[1].up.frames.size() == 51);
  CHECK(world[1].up.peers[0].why == errc::peer_failed);
}

TEST_CASE("shm: a peer that has ended cannot be reached, and the error says so") {
  shm_ranks world(2);
  world.open(0);
  world[1].transport.reset();
  message lost(frame_kind::eager, pattern(5, 1), 0);
  lost.submit(world[0].to(1));
  REQUIRE(world.drive({0}, [&] { return world[0].up.closings == 1; }));
  CHECK(lost.finished);
  CHECK_FALSE(lost.sent);
  CHECK(world[0].up.peers[1].why == errc::peer_failed);
  CHECK(contains(world[0].up.peers[1].text, "cannot reach rank 1 (host host1, pid 1001) over shared memory"));
}

TEST_CASE("shm: a peer given up while it connected stays given up when its descriptors arrive") {
  shm_ranks world(2);
  world.open();
  message lost(frame_kind::eager, pattern(10, 1), 0);
  lost.submit(world[0].to(1));
  int waiting = 0;  // for the descriptors of the other
  SUBCASE("the rank that connects waits") { REQUIRE(world.settle(0)); }
  SUBCASE("the rank that accepts waits") {
    waiting = 1;
    REQUIRE(world.drive([&] { return link_of(world, 1, 0).at() == phase::accepting; }));
  }
  const int late = 1 - waiting;
  world[waiting].to(late).give_up(errc::peer_failed, "stopped for too long");
  REQUIRE(world.drive({waiting}, [&] { return world[waiting].up.closings == 1; }));
  CHECK_FALSE(is_open(link_of(world, late, waiting)));
  // Its link opens, and ends with the connection.
  REQUIRE(
      world.drive([&] { return world[late].up.closings == 1 || is_open(link_of(world, waiting, late)); }));
  CHECK(world[waiting].to(late).closed());
  CHECK(world[late].to(waiting).closed());
  CHECK(world[late].up.peers[waiting].why == errc::peer_failed);
  CHECK(world[waiting].up.closings == 1);
  CHECK(world[waiting].up.frames.empty());
  CHECK(lost.finished);
}

TEST_CASE("shm: a peer given up while both connected stays given up when it would rather connect itself") {
  shm_ranks world(2);
  world.open();
  message up(frame_kind::eager, pattern(10, 1), 0), down(frame_kind::eager, pattern(10, 2), 0);
  up.submit(world[1].to(0));
  REQUIRE(world.settle(1));  // it has asked
  down.submit(world[0].to(1));
  REQUIRE(world.settle(0));  // it has declined, and asked itself
  world[1].to(0).give_up(errc::peer_failed, "stopped for too long");
  REQUIRE(world.drive({1}, [&] { return world[1].up.closings == 1; }));
  REQUIRE(world.drive([&] { return world[0].up.closings == 1 || is_open(link_of(world, 1, 0)); }));
  CHECK(world[1].to(0).closed());
  CHECK(world[0].to(1).closed());
  CHECK(world[1].up.closings == 1);
  CHECK(world[1].up.frames.empty());
  CHECK(up.finished);
}

TEST_CASE("shm: unauthenticated peers at the listener have no effect") {
  shm_ranks world(2, "a secret");
  world.open();
  // The abstract name of rank 1, which any process of this host can read in /proc/net/unix.
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const std::string& name = world[0].info.record(1).shm_address;
  REQUIRE(name.size() + 1 < sizeof to.sun_path);
  std::memcpy(to.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  std::vector<tutti::base::unique_fd> unauthenticated_peers;
  for (int i = 0; i < 20; ++i) {
    unauthenticated_peers.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(unauthenticated_peers.back().get(), reinterpret_cast<const sockaddr*>(&to), length) ==
            0);
    const std::vector<std::byte> noise = pattern(static_cast<std::size_t>(i) * 40, static_cast<unsigned>(i));
    CHECK(::send(unauthenticated_peers.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(noise.size()));
    if (i % 3 == 0) unauthenticated_peers.back().reset();
  }
  CHECK(world.connect(0, 1));
  CHECK(world[1].up.closings == 0);
  CHECK(world[1].up.frames.size() == 1);
}

TEST_CASE("shm: a rank connects again while too many connections wait at the other") {
  shm_ranks world(2);
  // A listener for rank 1 that accepts when the test says so. One connection may wait there.
  const std::string name = "tutti-test-" + std::to_string(::getpid()) + "-full";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  const auto make = [] { return tutti::base::unique_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)); };
  const tutti::base::unique_fd listener = make(), waits = make();
  REQUIRE(::bind(listener.get(), at, length) == 0);
  REQUIRE(::listen(listener.get(), 0) == 0);
  REQUIRE(::connect(waits.get(), at, length) == 0);
  world[0].info.peers[1].shm_address = name;
  world.open();
  message hello(frame_kind::refuse, {});
  hello.submit(world[0].to(1));
  REQUIRE(world.drive({0}, [rounds = 0]() mutable { return ++rounds > 100; }));
  CHECK_FALSE(world[0].up.peers[1].closed);
  const tutti::base::unique_fd first(::accept(listener.get(), nullptr, nullptr));
  tutti::base::unique_fd second;
  REQUIRE(world.drive({0}, [&] {
    second.reset(::accept(listener.get(), nullptr, nullptr));
    return static_cast<bool>(second) || world[0].up.peers[1].closed;
  }));
  CHECK(second);
  CAPTURE(world[0].up.peers[1].text);
  CHECK_FALSE(world[0].up.peers[1].closed);
}
