// SPDX-License-Identifier: Apache-2.0
// Both ends of a shared-memory channel: frames arrive unchanged, across every wrap of its rings.
#include "support/instrumented.hpp"
#include "support/local_world.hpp"
#include "transport/shm/channel_io.hpp"

#include <doctest/doctest.h>
#include <atomic>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace tutti::transport;
using namespace tutti::transport::shm;

namespace {

constexpr std::uint64_t world_id = 77;

// One mapping for each side, like between two processes.
struct two_ends {
  own_segment segment{world_id, 0, 2, 2};
  shm::channel inbox = segment.open_channel(1);
  peer_segment outbox{base::unique_fd(::dup(segment.fd())), world_id, 0, 1};
  channel_writer writer{outbox.mine()};
  channel_reader reader{inbox};
};

struct frame_of : outgoing {
  frame_of(frame_kind kind, std::uint64_t length, const std::byte* bytes) noexcept {
    head.kind = kind;
    head.context = 12;
    head.tag = 34;
    head.length = length;
    payload = bytes;
  }
};

struct message {
  frame head;
  std::vector<std::byte> payload;
};

// A frame that its number distinguishes from all others.
message random_message(random_numbers& numbers, std::uint64_t number) {
  static constexpr frame_kind kinds[] = {frame_kind::eager, frame_kind::eager, frame_kind::eager,
                                         frame_kind::rts,   frame_kind::cts,   frame_kind::refuse,
                                         frame_kind::data,  frame_kind::data,  frame_kind::cancel,
                                         frame_kind::fin,   frame_kind::fail};
  message m;
  m.head.kind = kinds[numbers.below(std::size(kinds))];
  m.head.context = static_cast<std::uint32_t>(numbers.next());
  m.head.tag = static_cast<std::int32_t>(number);
  const bool whole = m.head.kind == frame_kind::eager || m.head.kind == frame_kind::fail;
  if (whole) {
    m.head.length = numbers.one_in(2) ? numbers.below(100) : numbers.below(eager_limit_bytes + 1);
    m.payload = filled(m.head.length, number);
  } else {
    m.head.transfer_id = numbers.next();
    m.head.other_transfer_id = numbers.next() >> 8;
    m.head.length = numbers.next() >> 8;
    if (m.head.kind == frame_kind::data) {
      m.head.length = numbers.one_in(2) ? numbers.below(3 * slice_bytes) : numbers.below(500);
      m.head.length += 1;
      m.payload = filled(m.head.length, number);
    }
  }
  if (m.head.kind != frame_kind::data && numbers.one_in(2))
    fill(std::span<std::byte>(m.head.fingerprint), number + 1);
  return m;
}

bool same_head(const frame& a, const frame& b) {
  return a.kind == b.kind && a.context == b.context && a.tag == b.tag && a.transfer_id == b.transfer_id &&
         a.fingerprint == b.fingerprint;
}

// Writes until the channel is full. Returns true when the whole frame has been written.
bool write(channel_writer& writer, outgoing& o) {
  if (writer.in_parts(o.head)) {
    if (!writer.has_room_for_parts(o.head)) return false;
    while (o.progress < o.head.length) o.progress += writer.write_part(o.head, o.payload, o.progress);
    return true;
  }
  if (o.head.kind != frame_kind::data) return writer.write_message(o.head, o.payload);
  while (o.progress < o.head.length)
    if (!writer.write_slice(o)) return false;
  return true;
}

// As a loop that turns some times: the next message is no longer in a burst.
void turn(channel_writer& writer) {
  for (int i = 0; i < 4; ++i) writer.turn();
}

// Reads one frame or piece of one and compares it. `got` counts the bytes of earlier pieces.
std::string take(channel_reader& reader, const message& wanted, std::uint64_t& got) {
  channel_reader::item item;
  if (!reader.peek(item)) return "nothing there";
  if (!same_head(item.head, wanted.head)) return "another frame";
  const std::size_t bytes = item.part_bytes > 0      ? item.part_bytes
                            : wanted.payload.empty() ? 0
                                                     : item.head.length;
  const bool eager = wanted.head.kind == frame_kind::eager;
  if (item.part_bytes > 0 ? !eager || wanted.head.length <= whole_bytes
                          : eager && wanted.head.length > whole_in_burst_bytes)
    return "in parts, or whole, against the rule";
  if (item.part_bytes > 0 && item.part_begin != got) return "another part";
  if (wanted.head.kind == frame_kind::data) {
    if (item.head.other_transfer_id != wanted.head.other_transfer_id + got) return "a slice of another place";
  } else if (item.head.length != wanted.head.length ||
             item.head.other_transfer_id != wanted.head.other_transfer_id) {
    return "another length or transfer id";
  }
  if (got + bytes > wanted.payload.size()) return "too long";
  if (bytes > 0 && std::memcmp(item.payload, wanted.payload.data() + got, bytes) != 0) return "other bytes";
  got += bytes;
  reader.release();
  return "";
}

}  // namespace

TEST_CASE("shm channel: frames arrive unchanged across many wraps") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  random_numbers numbers(seed);
  two_ends ends;
  std::deque<message> in_flight;
  std::uint64_t written = 0;
  std::uint64_t read = 0;
  std::uint64_t got = 0;
  message next = random_message(numbers, 0);
  frame_of o(next.head.kind, 0, nullptr);
  o.head = next.head;
  o.payload = next.payload.data();
  for (int step = 0; step < 60'000; ++step) {
    if (numbers.one_in(8)) turn(ends.writer);
    if (numbers.one_in(2)) {
      const bool whole = write(ends.writer, o);
      if (whole) {
        in_flight.push_back(next);
        next = random_message(numbers, ++written);
        o.head = next.head;
        o.payload = next.payload.data();
        o.progress = 0;
      }
    } else {
      channel_reader::item item;
      if (ends.reader.peek(item)) {
        const message& wanted =
            in_flight.empty() ? next : in_flight.front();  // the slices of the one being written
        const std::string wrong = take(ends.reader, wanted, got);
        REQUIRE(wrong == "");
        if (!in_flight.empty() && got == wanted.payload.size()) {
          in_flight.pop_front();
          got = 0;
          ++read;
        }
      }
      if (numbers.one_in(3) && (numbers.one_in(4) || ends.reader.is_to_publish())) ends.reader.publish();
    }
  }
  CHECK_FALSE(ends.reader.broken());
  CHECK(read > 5'000);
}

TEST_CASE("shm channel: from one thread to another") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  two_ends ends;
  constexpr std::uint64_t messages = instrumented ? 2'000 : 30'000;
  std::atomic<bool> stop = false;
  std::thread producer([&] {
    random_numbers numbers(seed);
    for (std::uint64_t i = 0; i < messages; ++i) {
      const message m = random_message(numbers, i);
      frame_of o(m.head.kind, 0, m.payload.data());
      o.head = m.head;
      if (i % 3 == 0) turn(ends.writer);
      while (!write(ends.writer, o)) {
        if (stop.load()) return;
        if (!ends.writer.request_room()) std::this_thread::yield();
      }
    }
  });
  random_numbers numbers(seed);
  std::string wrong;
  const auto end = std::chrono::steady_clock::now() + patience;
  for (std::uint64_t i = 0; i < messages && wrong.empty(); ++i) {
    const message m = random_message(numbers, i);
    std::uint64_t got = 0;
    do {
      channel_reader::item item;
      while (!ends.reader.peek(item)) {
        // Like the loop before it sleeps: all space that was read is returned.
        ends.reader.publish();
        if (std::chrono::steady_clock::now() > end) wrong = "waited too long";
        if (!wrong.empty()) break;
        std::this_thread::yield();
      }
      if (wrong.empty()) wrong = take(ends.reader, m, got);
      if (ends.reader.is_to_publish()) ends.reader.publish();
    } while (wrong.empty() && got < m.payload.size());
  }
  stop.store(true);
  producer.join();
  CHECK(wrong == "");
  CHECK_FALSE(ends.reader.broken());
}

TEST_CASE("shm channel: a full channel, and a request for space") {
  two_ends ends;
  frame_of small(frame_kind::eager, 0, nullptr);
  std::size_t lines = 0;
  while (ends.writer.write_message(small.head, small.payload)) ++lines;
  CHECK(lines == lines_per_channel);
  CHECK_FALSE(ends.writer.request_room());
  channel_reader::item item;
  REQUIRE(ends.reader.peek(item));
  ends.reader.release();
  CHECK(ends.reader.is_to_publish());
  CHECK(ends.reader.publish());        // space was requested: publish it at once and wake the writer
  CHECK_FALSE(ends.reader.publish());  // once
  CHECK(ends.writer.write_message(small.head, small.payload));
  CHECK_FALSE(ends.writer.write_message(small.head, small.payload));

  SUBCASE("space freed between the check and the request is noticed") {
    REQUIRE(ends.reader.peek(item));
    ends.reader.release();
    ends.reader.publish();
    CHECK(ends.writer.request_room());
    CHECK(ends.writer.write_message(small.head, small.payload));
  }
  SUBCASE("the ring, full of messages") {
    while (ends.reader.peek(item)) ends.reader.release();
    ends.reader.publish();
    const std::vector<std::byte> payload(eager_limit_bytes);
    frame_of longest(frame_kind::eager, payload.size(), payload.data());
    std::size_t messages = 0;
    for (; write(ends.writer, longest); longest.progress = 0) ++messages;
    CHECK(messages == lines_per_channel / 4 - 1);  // each of four parts, and one line is taken
    CHECK(longest.progress == 0);                  // all parts, or none
    CHECK(ends.writer.write_message(small.head, small.payload));
    for (int part = 0; part < 4; ++part) {
      REQUIRE(ends.reader.peek(item));
      ends.reader.release();
    }
    ends.reader.publish();
    CHECK(write(ends.writer, longest));
  }
  SUBCASE("the ring, full of a long message") {
    while (ends.reader.peek(item)) ends.reader.release();
    ends.reader.publish();
    const std::vector<std::byte> payload(ends.inbox.ring_bytes + 10);
    frame_of data(frame_kind::data, payload.size(), payload.data());
    while (ends.writer.write_slice(data)) {
    }
    CHECK(data.progress == ends.inbox.ring_bytes);
    frame_of with_payload(frame_kind::eager, sizeof line::body + 1, payload.data());
    CHECK_FALSE(ends.writer.write_message(with_payload.head, with_payload.payload));
    CHECK(ends.writer.write_message(small.head, small.payload));  // needs no space in the ring
    std::uint64_t bytes = 0;
    while (ends.reader.peek(item)) {
      bytes += item.head.kind == frame_kind::data ? item.head.length : 0;
      ends.reader.release();
    }
    ends.reader.publish();
    CHECK(ends.writer.write_slice(data));
    CHECK(data.progress == payload.size());
    REQUIRE(ends.reader.peek(item));
    CHECK(bytes + item.head.length == payload.size());
  }
}

TEST_CASE("shm channel: a message of 8 KiB leaves in parts, but not in a burst") {
  two_ends ends;
  const std::vector<std::byte> payload(whole_in_burst_bytes);
  frame_of o(frame_kind::eager, payload.size(), payload.data());
  const auto pieces = [&] {
    o.progress = 0;
    REQUIRE(write(ends.writer, o));
    int seen = 0;
    for (channel_reader::item item; ends.reader.peek(item); ends.reader.release()) ++seen;
    ends.reader.publish();
    return seen;
  };
  CHECK(pieces() == 2);
  CHECK(pieces() == 1);
  turn(ends.writer);
  CHECK(pieces() == 2);
}

TEST_CASE("shm channel: lines that no peer writes break it and are not read") {
  two_ends ends;
  line& l = ends.outbox.mine().lines()[0];
  const auto stamp = [&l](std::uint32_t kind_and_flags) { l.stamp.store(stamp_of(0) | kind_and_flags); };
  SUBCASE("an unknown kind") { stamp(31); }
  SUBCASE("no kind") { stamp(0); }
  SUBCASE("a payload that the line cannot hold") {
    l.length = 49;
    stamp(static_cast<std::uint32_t>(frame_kind::eager));
  }
  SUBCASE("a payload and a fingerprint that the line cannot hold") {
    l.length = 33;
    stamp(static_cast<std::uint32_t>(frame_kind::eager) | line::has_fingerprint);
  }
  SUBCASE("a payload longer than the ring") {
    l.length = 0xffffffff;
    stamp(static_cast<std::uint32_t>(frame_kind::eager) | line::in_ring);
  }
  // The first part of a message is good.
  const auto parts_of = [&](std::uint64_t length, std::uint32_t bytes, int at) {
    line& one = ends.outbox.mine().lines()[at];
    one.length = bytes;
    std::memcpy(one.body + sizeof one.body - sizeof length, &length, sizeof length);
    one.stamp.store(stamp_of(static_cast<std::uint64_t>(at)) | static_cast<std::uint32_t>(frame_kind::eager) |
                    line::in_ring | line::part);
  };
  channel_reader::item item;
  SUBCASE("a part of a message that is too long") { parts_of(eager_limit_bytes + 1, 4096, 0); }
  SUBCASE("a part longer than its message") { parts_of(4096, 4097, 0); }
  SUBCASE("a part without bytes") { parts_of(4096, 0, 0); }
  SUBCASE("after a part") {
    parts_of(16384, 4096, 0);
    REQUIRE(ends.reader.peek(item));
    ends.reader.release();
    SUBCASE("another message") { ends.outbox.mine().lines()[1].stamp.store(stamp_of(1) | 1); }
    SUBCASE("a part of another") { parts_of(16385, 4096, 1); }
    SUBCASE("a part that is too long") { parts_of(16384, 12289, 1); }
  }
  SUBCASE("a slice longer than a slice") {
    const std::uint64_t length = slice_bytes + 1;
    std::memcpy(l.body, &length, sizeof length);
    stamp(static_cast<std::uint32_t>(frame_kind::data));
  }
  CHECK_FALSE(ends.reader.peek(item));
  CHECK(ends.reader.broken());
  CHECK_FALSE(ends.reader.peek(item));
}

TEST_CASE("shm channel: short messages have short slices, and a ring has space for many") {
  for (const auto& [length, slice] : {std::pair<std::size_t, std::size_t>{64 * 1024, 16 * 1024},
                                      {256 * 1024, 16 * 1024},
                                      {512 * 1024, 32 * 1024},
                                      {1024 * 1024, 64 * 1024},
                                      {16 * 1024 * 1024, 64 * 1024}}) {
    CAPTURE(length);
    two_ends ends;
    const std::vector<std::byte> payload(length);
    frame_of o(frame_kind::data, length, payload.data());
    REQUIRE(ends.writer.write_slice(o));
    CHECK(o.progress == slice);
  }
  CHECK(ring_bytes_for(2) == 2 * 1024 * 1024);
  CHECK(ring_bytes_for(16) == 2 * 1024 * 1024);
  CHECK(ring_bytes_for(64) == 512 * 1024);
  CHECK(ring_bytes_for(1024) == least_ring_bytes);
}

TEST_CASE("shm channel: a stamp of an earlier or later lap is not a new line") {
  two_ends ends;
  line& l = ends.outbox.mine().lines()[0];
  channel_reader::item item;
  for (const std::uint64_t position :
       {std::uint64_t{lines_per_channel}, std::uint64_t{7 * lines_per_channel}}) {
    l.stamp.store(stamp_of(position) | static_cast<std::uint32_t>(frame_kind::eager));
    CHECK_FALSE(ends.reader.has_next());
    CHECK_FALSE(ends.reader.peek(item));
  }
  CHECK_FALSE(ends.reader.broken());
}

TEST_CASE("shm channel: only the segment of the right rank and world is accepted") {
  const own_segment segment(world_id, 0, 2, 2);
  const auto view = [&](std::uint64_t world, int peer, int me) {
    return failure_of([&] { const peer_segment seen(base::unique_fd(::dup(segment.fd())), world, peer, me); })
        .code;
  };
  CHECK(view(world_id, 0, 1) == make_error_code(errc::success));
  CHECK(view(world_id + 1, 0, 1) == errc::protocol);
  CHECK(view(world_id, 1, 0) == errc::protocol);
  CHECK(view(world_id, 0, 2) == errc::protocol);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const base::unique_fd reading(ends[0]);
  CHECK(failure_of([&] { const peer_segment seen(base::unique_fd(ends[1]), world_id, 0, 1); }).code ==
        errc::protocol);
}
