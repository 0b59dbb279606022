// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/frame_io.hpp"

#include "base/crc32c.hpp"
#include "transport/tcp_fixture.hpp"

#include <sys/socket.h>

namespace {

using namespace tcp_test;
using outcome = tcp::outbox::outcome;

// A stream with a small buffer; frames from its other end are parsed.
struct stream {
  stream() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    near = tutti::base::unique_fd(fds[0]);
    far = tutti::base::unique_fd(fds[1]);
    to = tutti::core::socket_stream(near.get());
    const int small = 16 * 1024;
    ::setsockopt(near.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  }
  void read() {
    std::uint8_t buffer[8192];
    for (;;) {
      const ssize_t got = ::recv(far.get(), buffer, sizeof buffer, 0);
      if (got <= 0) break;
      raw.insert(raw.end(), buffer, buffer + got);
    }
    while (raw.size() - at >= tcp::header_bytes) {
      frame f;
      tcp::passage way;
      REQUIRE(tcp::decode(std::span<const std::uint8_t, 64>(raw.data() + at, 64), f, way) == nullptr);
      REQUIRE(way.number == static_cast<std::uint8_t>(frames.size()));
      const std::size_t payload = payload_bytes(f);
      if (raw.size() - at < 64 + payload) break;
      const auto* bytes = reinterpret_cast<const std::byte*>(raw.data() + at + 64);
      if (way.checked) {
        ++checked;
        REQUIRE(way.checksum == tutti::base::crc32c({raw.data() + at + 64, payload}));
      }
      frames.push_back(arrived{0, f, std::vector<std::byte>(bytes, bytes + payload)});
      at += 64 + payload;
    }
  }
  // Sends and reads until nothing is left.
  void pump(tcp::outbox& out) {
    for (int i = 0; i < 100'000; ++i) {
      tcp::outbox::list left;
      const outcome result = out.send(to, 1 << 20, left);
      REQUIRE(result != outcome::broken);
      while (outgoing* f = left.pop_front()) f->done(*f, true);
      read();
      if (result == outcome::drained) return;
    }
    FAIL("the outbox does not drain");
  }
  tutti::base::unique_fd near, far;
  tutti::core::socket_stream to;
  std::vector<std::uint8_t> raw;
  std::size_t at = 0;
  std::vector<arrived> frames;
  std::size_t checked = 0;  // of these frames
};

std::vector<std::byte> reassemble(const std::vector<arrived>& frames, std::uint64_t transfer_id,
                                  std::size_t bytes) {
  std::vector<std::byte> whole(bytes, std::byte{0});
  for (const arrived& a : frames)
    if (a.head.kind == frame_kind::data && a.head.transfer_id == transfer_id)
      std::memcpy(whole.data() + a.head.other_transfer_id, a.payload.data(), a.payload.size());
  return whole;
}

}  // namespace

TEST_CASE("tcp outbox: many small frames leave in one call, in order") {
  stream s;
  tcp::outbox out;
  std::vector<std::unique_ptr<message>> all;
  for (unsigned i = 0; i < 16; ++i) {
    all.push_back(std::make_unique<message>(frame_kind::eager, pattern(i, i), i));
    out.push(*all.back());
  }
  tcp::outbox::list left;
  // One call suffices: this budget would not allow a second.
  CHECK(out.send(s.to, 1, left) == outcome::drained);
  unsigned count = 0;
  while (outgoing* f = left.pop_front()) {
    CHECK(f == all[count].get());
    ++count;
  }
  CHECK(count == 16);
  s.read();
  REQUIRE(s.frames.size() == 16);
  for (unsigned i = 0; i < 16; ++i) {
    CHECK(s.frames[i].head.transfer_id == i);
    CHECK(s.frames[i].payload == pattern(i, i));
  }
}

TEST_CASE("tcp outbox: long data leave in slices, and messages pass between them") {
  stream s;
  tcp::outbox out;
  const std::size_t bytes = 3 * tcp::slice_bytes + 4711;
  message data(frame_kind::data, pattern(bytes, 1), 77);
  data.head.other_transfer_id = 0;
  out.push(data);
  tcp::outbox::list left;
  CHECK(out.send(s.to, 1 << 20, left) == outcome::blocked);
  message note(frame_kind::cts, {}, 78);
  message text(frame_kind::eager, pattern(50'000, 2), 79);
  out.push(note);
  out.push(text);
  s.pump(out);
  CHECK(data.finished);
  CHECK(note.finished);
  CHECK(text.finished);
  REQUIRE(s.frames.size() == 6);
  CHECK(s.frames[0].head.kind == frame_kind::data);
  CHECK(s.frames[0].head.length == tcp::slice_bytes);
  CHECK(s.frames[1].head.transfer_id == 78);
  CHECK(s.frames[2].payload == text.bytes);
  CHECK(s.frames[5].head.length == 4711);
  CHECK(reassemble(s.frames, 77, bytes) == data.bytes);
}

TEST_CASE("tcp outbox: data that fit a slice keep their place among the messages") {
  stream s;
  tcp::outbox out;
  message first(frame_kind::data, pattern(tcp::slice_bytes, 1), 1);
  message second(frame_kind::eager, pattern(10, 2), 2);
  message third(frame_kind::data, {}, 3);
  message fourth(frame_kind::rts, {}, 4);
  fourth.head.length = 1'000'000'000;  // of the message that it announces
  for (message* m : {&first, &second, &third, &fourth}) out.push(*m);
  s.pump(out);
  REQUIRE(s.frames.size() == 4);
  for (unsigned i = 0; i < 4; ++i) CHECK(s.frames[i].head.transfer_id == i + 1);
  CHECK(s.frames[0].payload == first.bytes);
  CHECK(s.frames[3].head.length == 1'000'000'000);
}

TEST_CASE("tcp outbox: two long messages share the stream without mixing") {
  stream s;
  tcp::outbox out;
  const std::size_t bytes = 2 * tcp::slice_bytes + 1;
  message one(frame_kind::data, pattern(bytes, 1), 1);
  message two(frame_kind::data, pattern(bytes, 2), 2);
  out.push(one);
  out.push(two);
  s.pump(out);
  CHECK(reassemble(s.frames, 1, bytes) == one.bytes);
  CHECK(reassemble(s.frames, 2, bytes) == two.bytes);
}

TEST_CASE("tcp outbox: a frame cancelled before it has begun is not sent") {
  stream s;
  tcp::outbox out;
  message one(frame_kind::eager, pattern(10, 1), 1);
  message two(frame_kind::eager, pattern(10, 2), 2);
  message three(frame_kind::data, pattern(1 << 20, 3), 3);
  out.push(one);
  out.push(two);
  out.push(three);
  CHECK(out.cancel(one) == cancel_result::gone);
  CHECK(out.cancel(three) == cancel_result::gone);
  CHECK(out.cancel(three) == cancel_result::gone);
  s.pump(out);
  REQUIRE(s.frames.size() == 1);
  CHECK(s.frames[0].head.transfer_id == 2);
  CHECK_FALSE(one.finished);
  CHECK(out.empty());
}

TEST_CASE("tcp outbox: a frame cancelled half way is finished from a copy, and its memory is free at once") {
  stream s;
  tcp::outbox out;
  SUBCASE("a message") {
    message half(frame_kind::eager, pattern(65'536, 1), 1);
    message next(frame_kind::eager, pattern(100, 2), 2);
    out.push(half);
    out.push(next);
    tcp::outbox::list left;
    REQUIRE(out.send(s.to, 1 << 20, left) == outcome::blocked);
    CHECK(out.cancel(half) == cancel_result::leaves);
    std::fill(half.bytes.begin(), half.bytes.end(), std::byte{0xDD});
    half.bytes.clear();
    half.bytes.shrink_to_fit();
    s.pump(out);
    REQUIRE(s.frames.size() == 2);
    CHECK(s.frames[0].payload == pattern(65'536, 1));
    CHECK(s.frames[1].payload == next.bytes);
    CHECK_FALSE(half.finished);
  }
  SUBCASE("data: the current slice is the last") {
    const std::size_t bytes = 4 * tcp::slice_bytes;
    message half(frame_kind::data, pattern(bytes, 1), 1);
    message next(frame_kind::data, pattern(bytes, 2), 2);
    out.push(half);
    out.push(next);
    tcp::outbox::list left;
    REQUIRE(out.send(s.to, 1 << 20, left) == outcome::blocked);
    CHECK(out.cancel(half) == cancel_result::gone);
    half.bytes.clear();
    half.bytes.shrink_to_fit();
    s.pump(out);
    REQUIRE(s.frames.size() == 5);
    CHECK(s.frames[0].head.transfer_id == 1);
    const std::vector<std::byte> expected = pattern(bytes, 1);
    CHECK(std::equal(s.frames[0].payload.begin(), s.frames[0].payload.end(), expected.begin()));
    CHECK(reassemble(s.frames, 2, bytes) == next.bytes);
  }
  SUBCASE("twice in succession") {
    for (unsigned round = 0; round < 20; ++round) {
      message half(frame_kind::eager, pattern(60'000, round), round);
      out.push(half);
      tcp::outbox::list left;
      out.send(s.to, 1 << 20, left);
      out.cancel(half);
      s.read();
    }
    s.pump(out);
    for (const arrived& a : s.frames)
      CHECK(a.payload == pattern(60'000, static_cast<unsigned>(a.head.transfer_id)));
  }
}

TEST_CASE("tcp outbox: a broken stream is an error, and clear() returns all frames") {
  stream s;
  tcp::outbox out;
  message one(frame_kind::eager, pattern(10, 1), 1);
  message two(frame_kind::data, pattern(1 << 20, 2), 2);
  out.push(one);
  out.push(two);
  s.far.reset();
  tcp::outbox::list left;
  CHECK(out.send(s.to, 1 << 20, left) == outcome::broken);
  CHECK(out.error() == EPIPE);
  tcp::outbox::list rest;
  out.clear(rest);
  CHECK(out.empty());
  CHECK(rest.pop_front() == &one);
  CHECK(rest.pop_front() == &two);
  CHECK(rest.empty());
}

TEST_CASE("tcp outbox: checksums match the bytes sent, also of a frame finished from a copy") {
  stream s;
  tcp::outbox out(true);
  message small(frame_kind::eager, pattern(1000, 1), 1);
  message nothing(frame_kind::cts, {}, 2);
  message long_data(frame_kind::data, pattern(1'000'000, 3), 3);
  for (message* m : {&small, &nothing, &long_data}) out.push(*m);
  tcp::outbox::list left;
  REQUIRE(out.send(s.to, 1 << 20, left) == outcome::blocked);
  while (outgoing* f = left.pop_front()) f->done(*f, true);
  REQUIRE(out.cancel(long_data));
  std::fill(long_data.bytes.begin(), long_data.bytes.end(), std::byte{0});
  s.read();
  s.pump(out);
  CHECK(s.frames.size() == 3);
  CHECK(s.checked == 2);
  const std::vector<std::byte> sent = pattern(1'000'000, 3);
  CHECK(std::equal(s.frames[2].payload.begin(), s.frames[2].payload.end(), sent.begin()));
}
