// SPDX-License-Identifier: Apache-2.0
// Long messages over several connections at once.
#include "transport/tcp/frame_io.hpp"

#include "support/skip.hpp"
#include "transport/tcp_fixture.hpp"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <set>

namespace {

using namespace tcp_test;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

// Connections without a peer: the test reads the frames from their outboxes.
class outboxes {
 public:
  explicit outboxes(std::size_t count) : boxes(count) {}
  // Removes all frames from box i, each complete.
  void drain(std::size_t i, std::vector<std::byte>& message) {
    struct taker final : tutti::core::byte_stream {
      explicit taker(std::vector<std::byte>& m) : into(m) {}
      ssize_t read(iovec*, std::size_t) noexcept override { return -1; }
      ssize_t write(const iovec* parts, std::size_t count) noexcept override {
        ssize_t all = 0;
        for (std::size_t p = 0; p < count; ++p) {
          const auto* at = static_cast<const std::uint8_t*>(parts[p].iov_base);
          all += static_cast<ssize_t>(parts[p].iov_len);
          bytes.insert(bytes.end(), at, at + parts[p].iov_len);
        }
        return all;
      }
      void take_apart() {
        for (std::size_t at = 0; at < bytes.size();) {
          frame f;
          tcp::passage way;
          REQUIRE(tcp::decode(std::span<const std::uint8_t, 64>(bytes.data() + at, 64), f, way) == nullptr);
          REQUIRE(f.other_transfer_id + f.length <= into.size());
          std::memcpy(into.data() + f.other_transfer_id, bytes.data() + at + 64, f.length);
          at += 64 + f.length;
        }
      }
      std::vector<std::byte>& into;
      std::vector<std::uint8_t> bytes;
    };
    taker to(message);
    tcp::outbox::list left;
    REQUIRE(boxes[i].send(to, SIZE_MAX, left) == tcp::outbox::outcome::drained);
    to.take_apart();
    while (outgoing* f = left.pop_front()) f->done(*f, true);
  }
  std::vector<tcp::outbox> boxes;
};

// This process's descriptors of connected TCP sockets.
std::set<int> sockets() {
  std::set<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
        (address.ss_family == AF_INET || address.ss_family == AF_INET6))
      found.insert(fd);
  }
  return found;
}

// Two ranks that use `connections` for their long messages, and all are open.
struct pair {
  explicit pair(std::size_t connections) : world(2) {
    world[0].info.tcp_connections = world[1].info.tcp_connections = connections;
    world.open();
    REQUIRE(world.connect(0, 1));
    static std::vector<std::byte> first_room(MiB);
    world[1].up.rooms[1] = {first_room.data(), MiB};
    message first(frame_kind::data, pattern(MiB, 1), 1);
    first.submit(from());
    REQUIRE(world.drive([&] {
      return first.finished && from().connections() == connections && to().connections() == connections;
    }));
  }
  tcp::tcp_link& from() { return static_cast<tcp::tcp_link&>(world[0].to(1)); }
  tcp::tcp_link& to() { return static_cast<tcp::tcp_link&>(world[1].to(0)); }
  ranks world;
};

}  // namespace

TEST_CASE("tcp stripes: free connections take turns, each byte is sent once, and the end reported once") {
  outboxes out(3);
  tcp::stripes p;
  message m(frame_kind::data, pattern(5 * MiB + 17, 1), 7);
  std::vector<std::byte> come(m.bytes.size());
  p.push(m);
  CHECK(p.has(m));
  for (std::size_t i = 0; i < 3; ++i) CHECK(p.next(i, 3, out.boxes[i]));
  CHECK_FALSE(p.next(0, 3, out.boxes[0]));  // has one already
  for (int i = 0; !m.finished && i < 100; ++i) {
    const std::size_t free = i % 2 == 0 ? 2 : 0;  // the one in between is slow
    out.drain(free, come);
    if (!p.next(free, 3, out.boxes[free])) out.drain(1, come);
  }
  CHECK(m.finished);
  CHECK(m.sent);
  CHECK(come == m.bytes);
  CHECK(p.empty());
}

TEST_CASE("tcp stripes: a message too short for all connections uses fewer") {
  outboxes out(4);
  tcp::stripes p;
  message m(frame_kind::data, pattern(600 * KiB, 1), 7);
  p.push(m);
  CHECK(p.next(0, 4, out.boxes[0]));
  CHECK(p.next(1, 4, out.boxes[1]));
  CHECK_FALSE(p.next(2, 4, out.boxes[2]));
  std::vector<std::byte> come(m.bytes.size());
  out.drain(1, come);
  CHECK_FALSE(m.finished);
  out.drain(0, come);
  CHECK(m.finished);
  CHECK(come == m.bytes);
}

TEST_CASE("tcp stripes: a cancelled message is not given out any more, and others continue") {
  outboxes out(2);
  tcp::stripes p;
  message one(frame_kind::data, pattern(4 * MiB, 1), 1);
  message two(frame_kind::data, pattern(MiB, 2), 2);
  p.push(one);
  p.push(two);
  REQUIRE(p.next(0, 2, out.boxes[0]));
  REQUIRE(p.next(1, 2, out.boxes[1]));
  CHECK(p.cancel(one) == cancel_result::gone);
  CHECK_FALSE(p.has(one));
  one.bytes.clear();
  CHECK(out.boxes[0].empty());
  CHECK(out.boxes[1].empty());
  std::vector<std::byte> come(two.bytes.size());
  REQUIRE(p.next(0, 2, out.boxes[0]));
  REQUIRE(p.next(1, 2, out.boxes[1]));
  out.drain(0, come);
  out.drain(1, come);
  CHECK(two.finished);
  CHECK(come == two.bytes);
  CHECK_FALSE(one.finished);
  CHECK(p.empty());
}

TEST_CASE("tcp stripes: the end of a link returns whole messages, not their stripes") {
  outboxes out(2);
  tcp::stripes p;
  message one(frame_kind::data, pattern(2 * MiB, 1), 1);
  message two(frame_kind::data, pattern(2 * MiB, 2), 2);
  p.push(one);
  p.push(two);
  REQUIRE(p.next(0, 2, out.boxes[0]));
  REQUIRE(p.next(1, 2, out.boxes[1]));
  tcp::outbox::list rest;
  p.clear(rest);
  for (tcp::outbox& b : out.boxes) b.clear(rest);
  CHECK(rest.pop_front() == &one);
  CHECK(rest.pop_front() == &two);
  CHECK(rest.empty());
  CHECK(p.empty());
}

TEST_CASE("tcp: long messages use several connections and arrive intact") {
  pair both(3);
  ranks& world = both.world;
  constexpr std::size_t bytes = 7 * MiB + 5;
  std::vector<std::vector<std::byte>> rooms(3, std::vector<std::byte>(bytes + 1, std::byte{0}));
  std::vector<std::unique_ptr<message>> sent;
  for (unsigned i = 0; i < 3; ++i) {
    world[1].up.rooms[100 + i] = {rooms[i].data(), bytes};
    sent.push_back(std::make_unique<message>(frame_kind::data, pattern(bytes, i), 100 + i));
    sent.back()->submit(both.from());
  }
  message note(frame_kind::eager, pattern(10, 9), 7);
  note.submit(both.from());
  REQUIRE(world.drive([&] {
    return note.finished && world[1].up.rooms[100].received == bytes &&
           world[1].up.rooms[101].received == bytes && world[1].up.rooms[102].received == bytes;
  }));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(sent[i]->sent);
    CHECK(std::memcmp(rooms[i].data(), sent[i]->bytes.data(), bytes) == 0);
    CHECK(rooms[i][bytes] == std::byte{0});
  }
  // The peer uses those that the other has made as well.
  world[0].up.rooms[200] = {rooms[0].data(), bytes};
  message back(frame_kind::data, pattern(bytes, 8), 200);
  back.submit(both.to());
  REQUIRE(world.drive([&] { return back.finished && world[0].up.rooms[200].received == bytes; }));
  CHECK(std::memcmp(rooms[0].data(), back.bytes.data(), bytes) == 0);
  CHECK(both.to().connections() == 3);
}

TEST_CASE("tcp: leaving after messages on several connections loses nothing") {
  pair both(4);
  ranks& world = both.world;
  constexpr std::size_t bytes = 3 * MiB;
  std::vector<std::vector<std::byte>> rooms(6, std::vector<std::byte>(bytes));
  std::vector<std::unique_ptr<message>> sent;
  for (unsigned i = 0; i < rooms.size(); ++i) {
    world[1].up.rooms[100 + i] = {rooms[i].data(), bytes};
    sent.push_back(std::make_unique<message>(frame_kind::data, pattern(bytes, i), 100 + i));
    sent.back()->submit(both.from());
  }
  world[0].leave();
  REQUIRE(world.drive([&] { return world[0].has_left && world[1].up.peers[0].closed; }));
  CHECK(world[1].up.peers[0].why == errc::peer_left);
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    CHECK(world[1].up.rooms[100 + i].received == bytes);
    CHECK(rooms[i] == sent[i]->bytes);
  }
}

TEST_CASE("tcp: what a peer had sent on several connections before it died is delivered before its end") {
  const std::set<int> before = sockets();
  pair both(3);
  ranks& world = both.world;
  // Descriptors are numbered in order: the first two are of the first connection. In the others, more data
  // wait at the sender than the receiver has room for.
  std::size_t number = 0;
  for (const int fd : sockets()) {
    if (before.contains(fd)) continue;
    const bool of_first = ++number <= 2;
    const int to_send = of_first ? 64 * KiB : 256 * KiB, to_read = of_first ? 256 * KiB : 16 * KiB;
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &to_send, sizeof to_send);
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &to_read, sizeof to_read);
  }
  REQUIRE(number == 6);
  constexpr std::size_t bytes = 2 * MiB;
  std::vector<std::byte> room(bytes);
  world[1].up.rooms[100] = {room.data(), bytes};
  message data(frame_kind::data, pattern(bytes, 1), 100);
  data.submit(both.from());
  REQUIRE(world.drive({1, 0}, [&] { return data.finished; }));
  // Like the kernel for a killed process: what was sent arrives, then the end.
  both.from().drop();
  REQUIRE(world.drive({1}, [&] { return world[1].up.closings == 1; }));
  CHECK(world[1].up.rooms[100].received == bytes);
  CHECK((room == data.bytes));
  CHECK(world[1].up.peers[0].why == errc::peer_failed);
}

TEST_CASE("tcp: cancelling a message on several connections frees its memory and leaves the link intact") {
  pair both(3);
  ranks& world = both.world;
  constexpr std::size_t bytes = 48 * MiB;
  std::vector<std::byte> room(bytes, std::byte{0});
  world[1].up.rooms[9] = {room.data(), bytes};
  message data(frame_kind::data, pattern(bytes, 1), 9);
  data.submit(both.from());
  REQUIRE(world.settle(0));  // the receiver reads nothing: the kernel is full
  REQUIRE_FALSE(data.finished);
  CHECK(both.from().cancel(data) == cancel_result::gone);
  data.bytes.clear();
  data.bytes.shrink_to_fit();
  CHECK_FALSE(data.linked());
  std::vector<std::byte> next_room(2 * MiB);
  world[1].up.rooms[10] = {next_room.data(), next_room.size()};
  message next(frame_kind::data, pattern(next_room.size(), 2), 10);
  next.submit(both.from());
  REQUIRE(world.drive([&] { return world[1].up.rooms[10].received == next_room.size(); }));
  CHECK(next_room == next.bytes);
  CHECK(world[1].up.rooms[9].received < bytes);
  CHECK_FALSE(data.finished);
}

TEST_CASE("tcp: destination buffers are moved on all connections, with the bytes so far") {
  pair both(3);
  ranks& world = both.world;
  constexpr std::size_t bytes = 24 * MiB;
  auto room = std::make_unique<std::vector<std::byte>>(bytes);
  std::vector<std::byte> other(bytes);
  world[1].up.rooms[9] = {room->data(), bytes};
  message data(frame_kind::data, pattern(bytes, 1), 9);
  data.submit(both.from());
  REQUIRE(world.drive([&] { return world[1].up.data_frames > 20; }));
  recorder::room& r = world[1].up.rooms[9];
  std::memcpy(other.data(), room->data(), bytes);
  r.at = other.data();
  both.to().redirect_destination(&r, destination_buffer{other.data(), bytes, &r});
  room.reset();
  REQUIRE(world.drive([&] { return data.finished && r.received == bytes; }));
  CHECK(other == data.bytes);
}

TEST_CASE("tcp: a peer that dies ends all its connections, and waiting frames are returned") {
  pair both(3);
  ranks& world = both.world;
  std::vector<std::unique_ptr<message>> sent;
  for (unsigned i = 0; i < 4; ++i) {
    sent.push_back(std::make_unique<message>(frame_kind::data, pattern(16 * MiB, i), 100 + i));
    sent.back()->submit(both.from());
  }
  REQUIRE(world.settle(0));
  world[1].transport->cut();
  REQUIRE(world.drive({0}, [&] { return world[0].up.peers[1].closed; }));
  CHECK(world[0].up.peers[1].why == errc::peer_failed);
  for (const auto& m : sent) {
    CHECK(m->finished);
    CHECK_FALSE(m->sent);
  }
  CHECK_FALSE(both.from().has_queue());
}

TEST_CASE("tcp: a broken connection ends the link") {
  const std::set<int> before = sockets();
  ranks one_of_each(2);
  one_of_each.open();
  REQUIRE(one_of_each.connect(0, 1));
  const std::size_t of_one = sockets().size() - before.size();
  pair both(2);
  ranks& world = both.world;
  // Descriptors are numbered in order: the newest is one end of the second connection.
  const std::set<int> all = sockets();
  REQUIRE(all.size() == before.size() + 2 * of_one + 2);
  REQUIRE(::shutdown(*all.rbegin(), SHUT_RDWR) == 0);
  std::vector<std::unique_ptr<message>> sent;
  for (unsigned i = 0; i < 4; ++i) {
    sent.push_back(std::make_unique<message>(frame_kind::data, pattern(4 * MiB, i), 100 + i));
    sent.back()->submit(both.from());
  }
  REQUIRE(world.drive([&] { return world[0].up.peers[1].closed && world[1].up.peers[0].closed; }));
  CHECK(world[0].up.peers[1].why == errc::peer_failed);
  CHECK(world[1].up.peers[0].why == errc::peer_failed);
}

TEST_CASE("tcp: the reset of one connection ends the link, whichever call is told of it") {
  pair both(2);
  ranks& world = both.world;
  // Descriptors are numbered in order: the newest is rank 1's end of the second connection, the one before
  // rank 0's.
  const std::set<int> all = sockets();
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  REQUIRE(::connect(*all.rbegin(), &none, sizeof none) == 0);  // sends a reset
  // The kernel reports it once: as if a send had been told.
  int told = 0;
  socklen_t length = sizeof told;
  REQUIRE(::getsockopt(*std::next(all.rbegin()), SOL_SOCKET, SO_ERROR, &told, &length) == 0);
  REQUIRE(told == ECONNRESET);
  std::vector<std::unique_ptr<message>> sent;
  for (unsigned i = 0; i < 4; ++i) {
    sent.push_back(std::make_unique<message>(frame_kind::data, pattern(4 * MiB, i), 100 + i));
    sent.back()->submit(both.from());
  }
  REQUIRE(world.drive({0}, [&] { return world[0].up.peers[1].closed; }));
  CHECK(world[0].up.peers[1].why == errc::peer_failed);
}

TEST_CASE("tcp: what the other connections have received is delivered before a reset ends the link") {
  constexpr std::size_t slices = 512 * KiB + 2 * tcp::header_bytes, rest = 32 * KiB;
  constexpr std::size_t bytes = 512 * KiB + rest;
  // Wanted: the first connection carries two slices, the second the rest. The kernel may take all of it in the
  // first, or make that wait: then again.
  bool wanted = false;
  for (int attempt = 0; attempt < 20 && !wanted; ++attempt) {
    const std::set<int> before = sockets();
    pair both(2);
    ranks& world = both.world;
    std::vector<int> ends;  // in order of their connections
    for (const int fd : sockets())
      if (!before.contains(fd)) ends.push_back(fd);
    REQUIRE(ends.size() == 4);
    const int little = 64 * KiB;
    for (const std::size_t i : {0U, 1U}) ::setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    std::vector<std::byte> room(bytes);
    world[1].up.rooms[100] = {room.data(), bytes};
    message data(frame_kind::data, pattern(bytes, 1), 100);
    data.submit(both.from());
    // What the first carries is taken away, so that rank 1 is told of the reset before it reads anything.
    std::size_t taken = 0;
    int sender = -1;
    std::vector<char> sink(64 * KiB);
    REQUIRE(world.drive({0}, [&] {
      int waits[2] = {0, 0};
      for (const std::size_t i : {0U, 1U}) {
        ::ioctl(ends[2 + i], FIONREAD, &waits[i]);
        const ssize_t got = ::recv(ends[i], sink.data(), sink.size(), MSG_DONTWAIT);
        if (got <= 0) continue;
        taken += static_cast<std::size_t>(got);
        sender = ends[1 - i];
      }
      wanted = taken == slices && waits[0] + waits[1] == static_cast<int>(rest + tcp::header_bytes);
      const bool other = taken == slices + rest + tcp::header_bytes || taken == rest + tcp::header_bytes;
      return data.finished && (wanted || other);
    }));
    if (!wanted) continue;
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    REQUIRE(::connect(sender, &none, sizeof none) == 0);  // sends a reset
    REQUIRE(world.drive({1}, [&] { return world[1].up.peers[0].closed; }));
    CHECK(world[1].up.peers[0].why == errc::peer_failed);
    CHECK(world[1].up.rooms[100].received == rest);
  }
  if (!wanted) TUTTI_SKIP("this kernel gave the first connection more or less than two slices, each time");
}

TEST_CASE("tcp: if no further connection can be made, one is enough") {
  ranks world(2);
  world[0].info.tcp_connections = 4;
  world.open();
  REQUIRE(world.connect(0, 1));
  world[0].info.peers[1].tcp_endpoint = "127.0.0.1:1";  // no listener there
  std::vector<std::byte> room(8 * MiB);
  world[1].up.rooms[1] = {room.data(), room.size()};
  message data(frame_kind::data, pattern(room.size(), 1), 1);
  data.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return data.finished && world[1].up.rooms[1].received == room.size(); }));
  CHECK(room == data.bytes);
  CHECK(static_cast<tcp::tcp_link&>(world[0].to(1)).connections() == 1);
  CHECK_FALSE(world[0].up.peers[1].closed);
}
