// SPDX-License-Identifier: Apache-2.0
// Frames over UCX, the ends of ranks, and buffers that UCX still uses, over UCX's own transports. ctest runs it over
// several of them (UCX_TLS).
#include "transport/ucx/ucx_transport.hpp"

#include "support/instrumented.hpp"
#include "transport/contract.hpp"
#include "transport/tcp/listen_address.hpp"

#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

namespace {

using namespace tcp_test;
namespace ucx = tutti::transport::ucx;
using tutti::test::contains;
using tutti::transport::redirect_result;

// Also of receives whose old place is not written any more.
using ucx_rank = rank_over<ucx::ucx_transport>;
using ucx_ranks = ranks_over<ucx::ucx_transport>;
constexpr std::size_t long_bytes = 24 * 1024 * 1024 + 17;

struct ucx_way {
  using transport = ucx::ucx_transport;
  static constexpr std::size_t eager_limit = ucx::eager_limit_bytes;
  static constexpr std::size_t too_much = long_bytes;
  static std::string absent() {
    // UCX patches the calls that a sanitizer watches, too.
    if (tutti::test::instrumented && std::getenv("UCX_MEM_EVENTS") == nullptr)
      return "under a sanitizer UCX needs UCX_MEM_EVENTS=n";
    try {
      tutti::base::ucx_library::of_this_process();
      return {};
    } catch (const tutti::error& e) {
      CHECK(contains(e.what(), "TUTTI_TRANSPORTS"));
      return "there is no UCX here (apt-get install libucx0)";
    }
  }
};
#define NEEDS_UCX() \
  if (const std::string why = ucx_way::absent(); !why.empty()) TUTTI_SKIP(why)

// Takes a place in each queue of this process's UCX in shared memory and never fills it, as a process does that is
// killed while it writes. Returns the number of queues.
int block_queues() {
  int found = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!contains(line, "ucx_shm_posix")) continue;
    // The head of a queue; from 128 bytes behind it, its tail and its owner.
    auto* const head = reinterpret_cast<std::uint64_t*>(std::stoull(line, nullptr, 16));
    if (static_cast<pid_t>(head[17]) != ::getpid()) continue;
    std::atomic_ref<std::uint64_t>(*head).fetch_add(1);
    ++found;
  }
  return found;
}

}  // namespace

TRANSPORT_CONTRACT("ucx", ucx_way)

TEST_CASE("ucx: it installs no signal handler") {
  NEEDS_UCX();
  ucx_ranks world(1);
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    CAPTURE(signal);
    struct sigaction now{};
    ::sigaction(signal, nullptr, &now);
    Dl_info where{};
    if (::dladdr(reinterpret_cast<void*>(now.sa_sigaction), &where) != 0)
      CHECK_FALSE(contains(where.dli_fname, "libuc"));
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

// Whether UCX has written the beginning of a slice, and not its end.
bool is_half_written(const std::vector<std::byte>& room, const std::vector<std::byte>& expected) {
  constexpr std::size_t some = 64;
  for (std::size_t at = 0; at + ucx::slice_bytes <= room.size(); at += ucx::slice_bytes) {
    const auto end = room.begin() + static_cast<std::ptrdiff_t>(at + ucx::slice_bytes);
    if (std::memcmp(room.data() + at, expected.data() + at, some) == 0 &&
        std::all_of(end - some, end, [](std::byte b) { return b == std::byte{0}; }))
      return true;
  }
  return false;
}

TEST_CASE("ucx: whoever must have a buffer back breaks the link to a peer that does nothing") {
  NEEDS_UCX();
  for (const bool begun : {false, true})
    for (const bool sender : {true, false}) {
      CAPTURE(begun);
      CAPTURE(sender);
      const char* const by = std::getenv("UCX_TLS");
      if (begun && (by == nullptr || contains(by, "tcp")))
        TUTTI_SKIP("UCX's own TCP may crash where a connection is broken off amid data");
      ucx_ranks world(2);
      world.open();
      REQUIRE(world.connect(0, 1));
      recorder& up = world[1].up;
      auto room = std::make_unique<std::vector<std::byte>>(long_bytes);
      up.rooms[1] = {room->data(), long_bytes};
      const std::vector<std::byte> expected = pattern(long_bytes, 1);
      message data(frame_kind::data, expected, 1);
      data.submit(world[0].to(1));
      // One step of UCX at a time: a turn of the loop may be a whole slice.
      for (const auto until = core::clock::now() + limit; begun && !is_half_written(*room, expected);) {
        REQUIRE(core::clock::now() < until);
        for (const auto& r : world.all) r->transport->poll();
      }
      REQUIRE_FALSE(data.finished);
      // The other side is in the same thread, and does nothing meanwhile.
      if (sender) {
        auto& link = static_cast<ucx::ucx_link&>(world[0].to(1));
        REQUIRE(link.cancel(data) == cancel_result::drains);
        CHECK_FALSE(link.drain(data));
        CHECK(link.at() != ucx::ucx_link::phase::connected);
        CHECK_FALSE(link.in_ucx());
        std::fill(data.bytes.begin(), data.bytes.end(), std::byte{0xEE});
        // The receiver goes on before the sender's loop turns again. Nothing that it reports is of the reused buffer.
        int rounds = 0;
        REQUIRE(world.drive({1}, [&] { return ++rounds > 200; }));
        REQUIRE(world.drive([&] { return world[0].up.closings == 1 && up.closings == 1; }));
        CHECK(world[0].up.peers[1].why == errc::peer_failed);
        CHECK(contains(world[0].up.peers[1].text, "rank 1"));
        CHECK(std::memcmp(room->data(), expected.data(), up.rooms[1].received) == 0);
      } else {
        auto& link = static_cast<ucx::ucx_link&>(world[1].to(0));
        link.redirect_destination(&up.rooms[1], destination_buffer{});
        link.drain_destination(&up.rooms[1]);
        up.rooms.clear();
        std::fill(room->begin(), room->end(), std::byte{0xA5});
        REQUIRE(world.drive([&] { return data.finished; }));
        CHECK(std::all_of(room->begin(), room->end(), [](std::byte b) { return b == std::byte{0xA5}; }));
      }
    }
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

// Two sides take back what neither has begun to receive. Returns what was wrong.
std::string take_back_on_both_sides() {
  ucx_ranks world(2);
  std::atomic<int> connected{0}, submitted{0}, drained{0};
  std::string wrong[2];
  const auto play = [&](int me) {
    const auto expect = [&](bool so, const char* what) {
      if (!so) wrong[me] += std::string(what) + "; ";
    };
    world.open(me);
    ucx_rank& r = world[me];
    message hello(frame_kind::refuse, {});
    hello.submit(r.to(1 - me));
    expect(world.run(me, [&] { return r.up.frames.size() == 1 && hello.finished; }), "not connected");
    // As a loop that goes on: UCX may still hold a frame that has been sent.
    const auto go_on_until_both = [&r](std::atomic<int>& are) {
      for (++are; are < 2;) {
        r.context.restart();
        r.context.poll();
      }
    };
    go_on_until_both(connected);
    std::vector<std::byte> room(long_bytes);
    r.up.rooms[1] = {room.data(), room.size()};
    message data(frame_kind::data, pattern(long_bytes, 1), 1);
    data.submit(r.to(1 - me));
    for (++submitted; submitted < 2;) std::this_thread::yield();
    expect(r.to(1 - me).cancel(data) == cancel_result::drains, "nothing drains");
    r.to(1 - me).drain(data);
    std::fill(data.bytes.begin(), data.bytes.end(), std::byte{0xEE});
    go_on_until_both(drained);
    message after(frame_kind::eager, pattern(10, 2), 2);
    after.submit(r.to(1 - me));
    const std::size_t sent = ucx::slices_in_flight * ucx::slice_bytes;
    expect(world.run(me, [&] { return r.up.frames.size() == 2; }), "no frame has come after the data");
    const std::size_t received = r.up.rooms[1].received;
    expect(received == sent, std::to_string(received).append(" bytes have come").c_str());
    expect(std::memcmp(room.data(), pattern(long_bytes, 1).data(), received) == 0, "other bytes have come");
    expect(r.up.closings == 0, r.up.peers[1 - me].text.c_str());
    r.leave();
    expect(world.run(me, [&] { return r.has_left; }), "not left");
    r.transport.reset();
  };
  for (const tutti::test::failure& f : tutti::test::run_threads(2, play)) CHECK(f.text.empty());
  return wrong[0] + wrong[1];
}

TEST_CASE("ucx: two sides that take back what neither has begun to receive both end") {
  NEEDS_UCX();
  std::string wrong = take_back_on_both_sides();
  // A thread that waits for its core for half a second breaks the connection; hardly three times.
  for (int again = 0; again < 2 && contains(wrong, "did not take part"); ++again)
    wrong = take_back_on_both_sides();
  CHECK(wrong == "");
}

TEST_CASE("ucx: a peer that always writes to the lifeline leaves the loop its turns") {
  NEEDS_UCX();
  ucx_ranks world(2);
  world.open();
  REQUIRE(world.connect(0, 1));
  // The two ends of the lifeline: rank 1's has the address of its listener.
  const auto port = tcp::parse_endpoint(world[0].info.record(1).ucx_endpoint);
  const auto is_there = [&](int (*name)(int, sockaddr*, socklen_t*), int fd) {
    sockaddr_storage at{};
    socklen_t length = sizeof at;
    int listens = 0;
    socklen_t word = sizeof listens;
    return name(fd, reinterpret_cast<sockaddr*>(&at), &length) == 0 && length == port.size() &&
           std::memcmp(&at, port.data(), offsetof(sockaddr_in, sin_zero)) == 0 &&
           ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &word) == 0 && listens == 0;
  };
  int near = -1, far = -1;
  for (int fd = 3; fd < 1024; ++fd) {
    if (is_there(::getpeername, fd)) near = fd;
    if (is_there(::getsockname, fd)) far = fd;
  }
  REQUIRE(near >= 0);
  REQUIRE(far >= 0);
  const std::string questions(65'536, '?');
  while (::send(near, questions.data(), questions.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) {
  }
  const auto unread = [far] {
    int bytes = 0;
    REQUIRE(::ioctl(far, FIONREAD, &bytes) == 0);
    return bytes;
  };
  const int before = unread();
  REQUIRE(world.drive({}, [&] {
    world[1].context.restart();
    world[1].context.poll_one();
    return unread() != before;
  }));
  CHECK(unread() > 0);
  CHECK(world.connect(0, 1));
}

TEST_CASE("ucx: a peer that answers, but from which UCX delivers nothing, is given up") {
  NEEDS_UCX();
  ucx_ranks world(2);
  for (const auto& r : world.all) r->info.silence_limit = 300ms;
  world.open();
  REQUIRE(world.connect(0, 1));
  core::time_point next{};
  int checks = 0;
  const auto check = [&] {
    if (const auto now = core::clock::now(); now >= next) {
      world[0].to(1).examine({now});
      next = now + 60ms;
      ++checks;
    }
  };
  REQUIRE(world.drive([&] { return check(), checks == 10; }));
  CHECK(world[0].up.closings == 0);
  if (block_queues() == 0) TUTTI_SKIP("only a queue in UCX's shared memory can be blocked");
  message lost(frame_kind::eager, pattern(10, 1), 1);
  lost.submit(world[1].to(0));
  REQUIRE(world.drive([&] { return check(), world[0].up.closings == 1; }));
  CHECK(world[0].up.peers[1].why == errc::peer_failed);
  CHECK(contains(world[0].up.peers[1].text, "UCX has delivered nothing from rank 1"));
  REQUIRE(world.drive([&] { return world[1].up.closings == 1; }));
}
