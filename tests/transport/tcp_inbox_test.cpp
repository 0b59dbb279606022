// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/frame_io.hpp"

#include "transport/tcp_fixture.hpp"

#include <sys/socket.h>

#include <random>

namespace {

using namespace tcp_test;
using outcome = tcp::inbox::outcome;

struct stream {
  stream() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    near = tutti::base::unique_fd(fds[0]);
    far = tutti::base::unique_fd(fds[1]);
    from = tutti::core::socket_stream(near.get());
    in.open();
  }
  static std::vector<std::byte> bytes_of(const frame& f, const std::vector<std::byte>& payload,
                                         unsigned number = 0) {
    tcp::header h;
    tcp::passage way;
    way.number = static_cast<std::uint8_t>(number);
    tcp::encode(f, h, way);
    const auto* at = reinterpret_cast<const std::byte*>(h.data());
    std::vector<std::byte> all(at, at + h.size());
    all.insert(all.end(), payload.begin(), payload.end());
    return all;
  }
  void put(const std::byte* at, std::size_t bytes) {
    while (bytes > 0) {
      const ssize_t sent = ::send(far.get(), at, bytes, MSG_NOSIGNAL);
      if (sent < 0) {
        REQUIRE(errno == EAGAIN);
        receive();
        continue;
      }
      at += sent;
      bytes -= static_cast<std::size_t>(sent);
    }
  }
  void put(const std::vector<std::byte>& bytes) { put(bytes.data(), bytes.size()); }
  // Reads until nothing is left.
  outcome receive() {
    for (;;) {
      const outcome result = in.receive(from, 1 << 20);
      if (result != outcome::nearly_empty && result != outcome::more) return result;
    }
  }
  tutti::base::unique_fd near, far;
  tutti::core::socket_stream from;
  recorder up;
  tcp::inbox in{3, up};
};

frame head_of(frame_kind kind, std::uint64_t length, std::uint64_t transfer_id = 0) {
  frame f;
  f.kind = kind;
  f.length = length;
  f.transfer_id = transfer_id;
  return f;
}

}  // namespace

TEST_CASE("tcp inbox: frames are assembled from pieces of any size") {
  std::vector<std::byte> bytes;
  std::vector<std::byte> room(5000, std::byte{0});
  for (unsigned i = 0; i < 60; ++i) {
    const std::vector<std::byte> payload = pattern(i * 11, i);
    const auto b = stream::bytes_of(head_of(frame_kind::eager, payload.size(), i), payload, i);
    bytes.insert(bytes.end(), b.begin(), b.end());
  }
  frame data = head_of(frame_kind::data, 3000, 999);
  data.other_transfer_id = 1000;
  const auto b = stream::bytes_of(data, pattern(3000, 5), 60);
  bytes.insert(bytes.end(), b.begin(), b.end());
  std::mt19937 random(3);
  for (const unsigned largest : {1U, 7U, 64U, 65U, 300U, 70'000U}) {
    stream s;
    s.up.rooms[999] = {room.data(), room.size()};
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = std::min<std::size_t>(1 + random() % largest, bytes.size() - at);
      s.put(bytes.data() + at, n);
      at += n;
      CHECK(s.receive() == outcome::empty);
    }
    REQUIRE(s.up.frames.size() == 60);
    for (unsigned i = 0; i < 60; ++i) {
      CHECK(s.up.frames[i].peer == 3);
      CHECK(s.up.frames[i].head.transfer_id == i);
      CHECK(s.up.frames[i].payload == pattern(i * 11, i));
    }
    CHECK(s.up.rooms[999].received == 3000);
    CHECK(std::equal(room.begin() + 1000, room.begin() + 4000, pattern(3000, 5).begin()));
    CHECK(room[4000] == std::byte{0});
    CHECK(s.in.received_bytes() == bytes.size());
  }
}

TEST_CASE("tcp inbox: data without a destination buffer are read and dropped") {
  stream s;
  std::vector<std::byte> room(1100, std::byte{1});
  s.up.rooms[1] = {room.data(), 1000};
  s.put(stream::bytes_of(head_of(frame_kind::data, 200'000, 1), pattern(200'000, 1)));     // too long
  s.put(stream::bytes_of(head_of(frame_kind::data, 200'000, 2), pattern(200'000, 2), 1));  // no receive
  s.put(stream::bytes_of(head_of(frame_kind::eager, 4, 3), pattern(4, 3), 2));
  CHECK(s.receive() == outcome::empty);
  CHECK(s.up.data_frames == 2);
  REQUIRE(s.up.frames.size() == 1);
  CHECK(s.up.frames[0].payload == pattern(4, 3));
  CHECK(std::equal(room.begin(), room.begin() + 1000, pattern(200'000, 1).begin()));
  CHECK(room[1000] == std::byte{1});
}

TEST_CASE("tcp inbox: an abandoned destination buffer is free at once, in the middle of its frame") {
  for (const std::size_t bytes : {2000UL, 200'000UL}) {
    stream s;
    auto room = std::make_unique<std::vector<std::byte>>(bytes, std::byte{0});
    s.up.rooms[1] = {room->data(), bytes};
    const auto all = stream::bytes_of(head_of(frame_kind::data, bytes, 1), pattern(bytes, 1));
    s.put(all.data(), all.size() / 2);
    CHECK(s.receive() == outcome::empty);
    CHECK(s.up.peers[3].data_in_progress == 1);
    CHECK_FALSE(s.in.redirect(&s, destination_buffer{}));  // belongs to another receive
    CHECK(s.in.redirect(&s.up.rooms[1], destination_buffer{}));
    CHECK_FALSE(s.in.redirect(&s.up.rooms[1], destination_buffer{}));
    s.up.rooms.clear();
    room.reset();
    s.put(all.data() + all.size() / 2, all.size() - all.size() / 2);
    s.put(stream::bytes_of(head_of(frame_kind::eager, 4, 3), pattern(4, 3), 1));
    CHECK(s.receive() == outcome::empty);
    CHECK(s.up.data_frames == 1);
    CHECK(s.up.frames.size() == 1);
  }
}

TEST_CASE("tcp inbox: a destination buffer is moved in the middle of its frame, with the bytes so far") {
  for (const std::size_t bytes : {2000UL, 200'000UL}) {
    for (const std::size_t come : {std::size_t{0}, std::size_t{1}, bytes / 3, bytes - 1}) {
      CAPTURE(bytes);
      CAPTURE(come);
      stream s;
      auto room = std::make_unique<std::vector<std::byte>>(bytes, std::byte{0});
      std::vector<std::byte> second(bytes + 9, std::byte{1}), third(bytes + 9, std::byte{1});
      s.up.rooms[1] = {room->data(), bytes};
      const auto all = stream::bytes_of(head_of(frame_kind::data, bytes, 1), pattern(bytes, 1));
      const std::size_t first = tcp::header_bytes + come;
      s.put(all.data(), first);
      CHECK(s.receive() == outcome::empty);
      recorder::room owner{second.data(), second.size()}, other{third.data(), bytes};
      REQUIRE(s.in.redirect(&s.up.rooms[1], destination_buffer{second.data(), second.size(), &owner}));
      room.reset();  // free at once
      s.up.rooms.clear();
      const std::size_t more = (all.size() - first) / 2;
      s.put(all.data() + first, more);
      CHECK(s.receive() == outcome::empty);
      REQUIRE(s.in.redirect(&owner, destination_buffer{third.data(), bytes, &other}));
      std::fill(second.begin(), second.end(), std::byte{2});
      s.put(all.data() + first + more, all.size() - first - more);
      s.put(stream::bytes_of(head_of(frame_kind::eager, 4, 3), pattern(4, 3), 1));
      CHECK(s.receive() == outcome::empty);
      CHECK(s.up.data_frames == 1);
      CHECK(other.received == bytes);
      CHECK(owner.received == 0);
      CHECK(s.up.frames.size() == 1);
      const std::vector<std::byte> wanted = pattern(bytes, 1);
      CHECK(std::equal(wanted.begin(), wanted.end(), third.begin()));
      CHECK(third[bytes] == std::byte{1});
      CHECK(std::count(second.begin(), second.end(), std::byte{2}) ==
            static_cast<std::ptrdiff_t>(second.size()));
    }
  }
}

TEST_CASE("tcp inbox: one read keeps to the budget, the rest follows later") {
  stream s;
  for (unsigned i = 0; i < 80; ++i)  // more than one call reads
    s.put(stream::bytes_of(head_of(frame_kind::eager, 1000, 1), pattern(1000, 1), i));
  CHECK(s.in.receive(s.from, 1000) == outcome::more);
  CHECK(s.up.frames.size() < 80);
  CHECK(s.receive() == outcome::empty);
  CHECK(s.up.frames.size() == 80);
}

TEST_CASE("tcp inbox: the end of the stream, with and without a leave frame") {
  stream s;
  SUBCASE("without") {
    s.put(stream::bytes_of(head_of(frame_kind::eager, 4, 3), pattern(4, 3)));
    s.far.reset();
    CHECK(s.receive() == outcome::ended);
    CHECK_FALSE(s.in.heard_leave());
  }
  SUBCASE("with") {
    s.put(stream::bytes_of(head_of(frame_kind::eager, 4, 3), pattern(4, 3)));
    s.put(stream::bytes_of(head_of(frame_kind::leave, 0), {}, 1));
    s.far.reset();
    CHECK(s.receive() == outcome::ended);
    CHECK(s.in.heard_leave());
  }
  SUBCASE("in the middle of a frame") {
    const auto b = stream::bytes_of(head_of(frame_kind::eager, 4000, 3), pattern(2000, 3));
    s.put(b);
    s.far.reset();
    CHECK(s.receive() == outcome::ended);
    CHECK(s.up.frames.empty());
    return;
  }
  CHECK(s.up.frames.size() == 1);
}

TEST_CASE("tcp inbox: frames that no peer sends are refused") {
  stream s;
  SUBCASE("text") {
    s.put(pattern(200, 1));
    CHECK(s.receive() == outcome::malformed);
  }
  SUBCASE("a length beyond the limit, with a valid checksum") {
    s.put(stream::bytes_of(head_of(frame_kind::eager, tcp::eager_limit_bytes + 1), {}));
    CHECK(s.receive() == outcome::malformed);
  }
  SUBCASE("frames after leave") {
    s.put(stream::bytes_of(head_of(frame_kind::leave, 0), {}));
    s.put(stream::bytes_of(head_of(frame_kind::cts, 0), {}, 1));
    CHECK(s.receive() == outcome::malformed);
  }
  SUBCASE("a duplicated frame") {
    s.put(stream::bytes_of(head_of(frame_kind::leave, 0), {}, 1));
    CHECK(s.receive() == outcome::malformed);
  }
  SUBCASE("a payload checksum that was not agreed on") {
    tcp::passage way;
    way.checked = true;
    tcp::header h;
    tcp::encode(head_of(frame_kind::eager, 4), h, way);
    s.put(reinterpret_cast<const std::byte*>(h.data()), h.size());
    CHECK(s.receive() == outcome::malformed);
  }
  CHECK(s.in.complaint() != nullptr);
  CHECK(s.up.frames.empty());
}

TEST_CASE("tcp inbox: frames must arrive in the order of sending, each once") {
  for (const unsigned third : {0U, 1U, 3U, 4U, 255U}) {
    stream s;
    for (const unsigned number : {0U, 1U, third})
      s.put(stream::bytes_of(head_of(frame_kind::eager, 4, number), pattern(4, number), number));
    CHECK(s.receive() == outcome::malformed);
    CHECK(s.up.frames.size() == 2);
  }
}

TEST_CASE("tcp inbox: a muted inbox drops everything, a stopped one reads nothing") {
  stream s;
  std::vector<std::byte> room(1000, std::byte{0});
  s.up.rooms[1] = {room.data(), room.size()};
  const auto all = stream::bytes_of(head_of(frame_kind::data, 1000, 1), pattern(1000, 1));
  s.put(all.data(), 500);
  CHECK(s.receive() == outcome::empty);
  s.in.mute();
  s.up.finished = true;
  std::fill(room.begin(), room.end(), std::byte{9});
  s.put(all.data() + 500, all.size() - 500);
  s.put(stream::bytes_of(head_of(frame_kind::data, 1000, 1), pattern(1000, 1), 1));
  CHECK(s.receive() == outcome::empty);
  CHECK(room == std::vector<std::byte>(1000, std::byte{9}));
  s.in.stop();
  s.put(all);
  CHECK(s.receive() == outcome::stopped);
}
