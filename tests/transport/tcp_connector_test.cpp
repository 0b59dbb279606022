// SPDX-License-Identifier: Apache-2.0
// How connections are made: on demand, from both sides at once, against unauthenticated peers, and not at
// all.
#include "core/handshake.hpp"
#include "core/wakeup.hpp"
#include "support/contains.hpp"
#include "support/listening_socket.hpp"
#include "support/run_task.hpp"
#include "support/skip.hpp"
#include "transport/tcp/listen_address.hpp"
#include "transport/tcp_fixture.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <thread>

namespace {

using namespace tcp_test;

using tutti::test::contains;

const std::string& endpoint_of(ranks& world, int i) { return world[i].info.record(i).tcp_endpoint; }

void submit_three(rank& r, int to, std::vector<std::unique_ptr<message>>& all) {
  for (unsigned i = 0; i < 3; ++i) {
    all.push_back(std::make_unique<message>(frame_kind::eager, pattern(i * 500, i), i));
    all.back()->submit(r.to(to));
  }
}

bool three_in_order(const recorder& up) {
  if (up.frames.size() != 3) return false;
  for (unsigned i = 0; i < 3; ++i)
    if (up.frames[i].head.transfer_id != i || up.frames[i].payload != pattern(i * 500, i)) return false;
  return true;
}

// A listener that ignores its connections.
struct dead_end {
  tcp::listener listening = tcp::open_listener("127.0.0.1");
};

// One side of the handshake, as another implementation could do it.
struct unauthenticated_peer {
  boost::asio::io_context context;
  core::stream_socket socket{context};
  core::running_task task;
  core::verdict answer{};
  errc code = errc::success;
  bool over = false;

  static tutti::task<> greet(unauthenticated_peer* self, core::stream_endpoint to, std::string secret,
                             core::identity mine, int wanted) {
    try {
      const auto deadline = core::clock::now() + limit;
      self->socket = co_await core::connect(self->context.get_executor(), to, deadline);
      self->answer = co_await core::greet(self->socket, secret, mine, wanted, deadline);
    } catch (const tutti::error& e) {
      self->code = static_cast<errc>(e.code().value());
    }
  }
  void start(const std::string& endpoint, std::string secret, core::identity mine, int wanted) {
    task.start(
        greet(this, tcp::parse_endpoint(endpoint), std::move(secret), mine, wanted),
        [](void* self, std::exception_ptr) noexcept {
          static_cast<unauthenticated_peer*>(self)->over = true;
        },
        this);
  }
  void poll() {
    context.restart();
    context.poll();
  }
};

core::identity rank_of_world(int rank, std::uint64_t world = 42) {
  core::identity id;
  id.what = core::purpose::tcp_link;
  id.world = world;
  id.rank = rank;
  return id;
}

}  // namespace

TEST_CASE("tcp connector: both sides connect at once, nothing is lost or doubled") {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    ranks world(2, round % 2 == 0 ? "" : "secret");
    world.open();
    std::vector<std::unique_ptr<message>> sent;
    // The second side starts at any point of the first side's attempt.
    const int first = static_cast<int>(random() % 2);
    submit_three(world[first], 1 - first, sent);
    for (unsigned steps = round < 50 ? 0 : random() % 12; steps > 0; --steps) {
      rank& r = world[static_cast<int>(random() % 2)];
      r.context.restart();
      r.context.poll_one();
    }
    submit_three(world[1 - first], first, sent);
    REQUIRE(world.drive([&] {
      for (const auto& m : sent)
        if (!m->finished) return false;
      return world[0].up.frames.size() >= 3 && world[1].up.frames.size() >= 3;
    }));
    CHECK(three_in_order(world[0].up));
    CHECK(three_in_order(world[1].up));
    for (int i = 0; i < 2; ++i) world[i].leave();
    REQUIRE(world.drive([&] { return world[0].has_left && world[1].has_left; }));
    CHECK(three_in_order(world[0].up));
    CHECK(three_in_order(world[1].up));
    CHECK(world[0].up.closings + world[1].up.closings == 0);
  }
}

TEST_CASE("tcp connector: both sides connect at once, each in its own thread") {
  for (int round = 0; round < 50; ++round) {
    ranks world(2);
    std::atomic<int> ready{0};
    bool ok[2] = {false, false};
    const auto play = [&](int me) {
      world.open(me);
      rank& r = world[me];
      ready.fetch_add(1);
      while (ready.load() < 2) std::this_thread::yield();
      std::vector<std::unique_ptr<message>> sent;
      submit_three(r, 1 - me, sent);
      bool good = world.run(me, [&] {
        for (const auto& m : sent)
          if (!m->finished) return false;
        return r.up.frames.size() >= 3;
      });
      r.leave();
      good = good && world.run(me, [&] { return r.has_left; });
      ok[me] = good && three_in_order(r.up);
      r.transport.reset();
    };
    for (const tutti::test::failure& f : tutti::test::run_threads(2, play)) CHECK(f.text.empty());
    REQUIRE(ok[0]);
    REQUIRE(ok[1]);
  }
}

TEST_CASE("tcp connector: all ranks connect to each other at once") {
  constexpr int size = 6;
  ranks world(size, "secret");
  world.open();
  std::vector<std::unique_ptr<message>> sent;
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to)
      if (from != to) submit_three(world[from], to, sent);
  REQUIRE(world.drive([&] {
    for (int i = 0; i < size; ++i)
      if (world[i].up.frames.size() < 3 * (size - 1)) return false;
    return true;
  }));
  for (int i = 0; i < size; ++i) {
    CHECK(world[i].up.frames.size() == 3 * (size - 1));
    CHECK(world[i].up.closings == 0);
  }
}

TEST_CASE("tcp connector: the lower rank's connection stays, the higher one's is answered with use_other") {
  ranks world(3);
  // The test acts as rank 2, to which rank 0 connects: its listener does not answer, and its own attempt
  // arrives now.
  dead_end silent;
  for (int i = 0; i < 3; ++i) world[i].info.peers[2].tcp_endpoint = silent.listening.endpoint;
  world.open(0);
  world.open(1);
  message waiting(frame_kind::eager, pattern(5, 1), 1);
  waiting.submit(world[0].to(2));
  unauthenticated_peer two;
  two.start(endpoint_of(world, 0), "", rank_of_world(2), 0);
  REQUIRE(world.drive({0}, [&] {
    two.poll();
    return two.over;
  }));
  CHECK(two.code == errc::success);
  CHECK(two.answer == core::verdict::use_other);
  CHECK_FALSE(waiting.finished);
}

TEST_CASE("tcp connector: a rank that waits for the peer's connection notices the end of the peer") {
  ranks world(2, "", 60s);
  world.open();
  // Rank 1 is told to wait for rank 0's connection, which goes to a listener that does not answer.
  dead_end silent;
  world[0].info.peers[1].tcp_endpoint = silent.listening.endpoint;
  message a(frame_kind::eager, pattern(5, 1), 1);
  message b(frame_kind::eager, pattern(5, 1), 1);
  a.submit(world[0].to(1));
  b.submit(world[1].to(0));
  auto& waiting = static_cast<tcp::tcp_link&>(world[1].to(0));
  REQUIRE(world.drive([&] { return waiting.at() == tcp::tcp_link::phase::awaiting; }));
  world[0].transport->cut();
  REQUIRE(world.drive({1}, [&] { return world[1].up.closings == 1; }));
  CHECK(world[1].up.peers[0].why == errc::peer_failed);
  CHECK(contains(world[1].up.peers[0].text, "was about to connect"));
}

TEST_CASE("tcp connector: the error for a process that has ended has rank, host, address and the cure") {
  ranks world(2);
  {
    dead_end gone;
    world[0].info.peers[1].tcp_endpoint = gone.listening.endpoint;
  }
  world.open();
  message m(frame_kind::eager, pattern(5, 1), 1);
  m.submit(world[0].to(1));
  CHECK(world[0].up.closings == 0);
  CHECK_FALSE(m.finished);
  REQUIRE(world.drive({0}, [&] { return world[0].up.closings == 1; }));
  CHECK(m.finished);
  CHECK_FALSE(m.sent);
  const recorder::state& s = world[0].up.peers[1];
  CHECK(s.why == errc::peer_failed);
  CHECK(contains(s.text, "rank 1 (host host1, pid 1001)"));
  CHECK(contains(s.text, world[0].info.peers[1].tcp_endpoint.c_str()));
  CHECK(contains(s.text, "process has gone"));
  CHECK(contains(s.text, "TUTTI_ADDRESS"));
}

TEST_CASE("tcp connector: a process that does not answer is given up at the timeout") {
  ranks world(2, "", 100ms);
  dead_end silent;
  world[0].info.peers[1].tcp_endpoint = silent.listening.endpoint;
  world.open();
  message m(frame_kind::eager, pattern(5, 1), 1);
  m.submit(world[0].to(1));
  REQUIRE(world.drive({0}, [&] { return world[0].up.closings == 1; }));
  const recorder::state& s = world[0].up.peers[1];
  CHECK(s.why == errc::timed_out);
  CHECK(contains(s.text, "does not answer"));
  CHECK(contains(s.text, "100 ms"));
}

TEST_CASE("tcp connector: a preferred connection that never arrives is given up as well") {
  ranks world(2, "", 100ms);
  world.open();
  // Rank 1 is told to wait for rank 0's connection, which never reaches it.
  dead_end silent;
  world[0].info.peers[1].tcp_endpoint = silent.listening.endpoint;
  message a(frame_kind::eager, pattern(5, 1), 1);
  message b(frame_kind::eager, pattern(5, 1), 1);
  a.submit(world[0].to(1));
  b.submit(world[1].to(0));
  REQUIRE(world.drive([&] { return world[0].up.closings == 1 && world[1].up.closings == 1; }));
  CHECK(world[0].up.peers[1].why == errc::timed_out);
  // Rank 1 times out, or sees that rank 0 has given up.
  const errc seen = world[1].up.peers[0].why;
  CHECK((seen == errc::timed_out || seen == errc::peer_failed));
  CHECK(contains(world[1].up.peers[0].text, "rank 0 (host host0, pid 1000)"));
}

TEST_CASE("tcp connector: a link given up while it accepts ends at once") {
  ranks world(2);
  world.open();
  message waiting(frame_kind::eager, pattern(5, 1), 1);
  auto& accepting = static_cast<tcp::tcp_link&>(world[0].to(1));
  accepting.enter(tcp::tcp_link::phase::accepting);
  waiting.submit(accepting);
  accepting.give_up(errc::resources, "as it was told to");
  CHECK(world[0].up.closings == 0);
  REQUIRE(world.drive({0}, [&] { return world[0].up.closings == 1; }));
  CHECK(world[0].up.peers[1].why == errc::resources);
  CHECK(world[0].up.peers[1].text == "as it was told to");
  CHECK(waiting.finished);
  CHECK_FALSE(waiting.sent);
}

TEST_CASE("tcp connector: an endpoint record without an address is an error, not a wait") {
  ranks world(2);
  world[0].info.peers[1].tcp_endpoint.clear();
  world.open();
  message m(frame_kind::eager, pattern(5, 1), 1);
  m.submit(world[0].to(1));
  CHECK(world[0].up.closings == 0);
  REQUIRE(world.drive({0}, [&] { return world[0].up.closings == 1; }));
  CHECK(contains(world[0].up.peers[1].text, "no address"));
}

namespace {

// Has the record of rank 1, which rank 0 does not know, and answers when it is told to.
struct one_record final : core::record_source {
  tutti::task<std::vector<core::endpoint_record>> ask(int rank, core::time_point deadline) override {
    CHECK(rank == 1);
    ++asked;
    tutti::core::wakeup pause(*executor);
    while (!answers && core::clock::now() < deadline)
      co_await pause.wait(std::min(deadline, core::clock::now() + 1ms));
    if (!answers) throw tutti::error(errc::timed_out, "the store does not answer");
    if (!trouble.empty()) throw tutti::error(errc::peer_failed, trouble);
    co_return std::vector{record};
  }
  bool close() noexcept override { return true; }

  std::optional<boost::asio::any_io_executor> executor;
  core::endpoint_record record;
  std::string trouble;
  bool answers = false;
  int asked = 0;
};

std::shared_ptr<one_record> forget_rank_1(ranks& world) {
  const auto made = std::make_shared<one_record>();
  made->executor = world[0].context.get_executor();
  made->record = world[0].info.record(1);
  core::peer_records others;
  others.learn(world[0].info.record(0));
  others.set_source(made);
  world[0].info.peers = others;
  return made;
}

}  // namespace

TEST_CASE(
    "tcp connector: a rank asks for the record of the rank that it connects to, and for that of one that "
    "connects") {
  ranks world(2);
  const std::shared_ptr<one_record> source = forget_rank_1(world);
  world.open();
  SUBCASE("it connects") {
    std::vector<std::unique_ptr<message>> sent;
    submit_three(world[0], 1, sent);
    REQUIRE(world.drive([&] { return source->asked == 1; }));
    CHECK(world[1].up.frames.empty());
    source->answers = true;
    REQUIRE(world.drive([&] { return world[1].up.frames.size() == 3; }));
    CHECK(three_in_order(world[1].up));
  }
  SUBCASE("the other does, while the record is asked for") {
    message waiting(frame_kind::eager, pattern(5, 1), 1);
    waiting.submit(world[0].to(1));
    REQUIRE(world.drive([&] { return source->asked == 1; }));
    CHECK(world.connect(1, 0));
    REQUIRE(world.drive([&] { return world[1].up.frames.size() == 1; }));
    source->answers = true;
    REQUIRE(world.drive([&] { return world[0].info.peers.find(1) != nullptr; }));
  }
  CHECK(source->asked <= 2);
  CHECK(world[0].info.describe(1) == "rank 1 (host host1, pid 1001)");
  CHECK(world[0].up.closings == 0);
}

TEST_CASE("tcp connector: without the record the link ends, and says why") {
  ranks world(2, "", 100ms);
  const std::shared_ptr<one_record> source = forget_rank_1(world);
  world.open();
  message m(frame_kind::eager, pattern(5, 1), 1);
  errc code = errc::timed_out;
  std::string why = "no connection to rank 1: the store does not answer (after 100 ms): allow more time";
  SUBCASE("nobody answers") {}
  SUBCASE("the source has gone") {
    source->answers = true;
    source->trouble = "gone";
    code = errc::peer_failed;
    why = "no connection to rank 1: gone: what serves the store";
  }
  SUBCASE("the link is given up before") {
    m.submit(world[0].to(1));
    REQUIRE(world.drive({0}, [&] { return source->asked == 1; }));
    world[0].to(1).give_up(errc::peer_failed, "it has died");
    code = errc::peer_failed;
    why = "it has died";
  }
  if (source->asked == 0) m.submit(world[0].to(1));
  REQUIRE(world.drive({0}, [&] { return world[0].up.closings == 1; }));
  CHECK(world[0].up.peers[1].why == code);
  CHECK_MESSAGE(contains(world[0].up.peers[1].text, why.c_str()), world[0].up.peers[1].text);
  CHECK(m.finished);
  CHECK_FALSE(m.sent);
}

TEST_CASE("tcp connector: a stale record does not lead into another world") {
  // Where rank 1 of world 42 is said to listen, rank 1 of another world or of a later epoch does, or another rank.
  ranks world(3, "secret", 2s);
  const std::shared_ptr<one_record> source = forget_rank_1(world);
  source->answers = true;
  SUBCASE("world") { world[1].info.id = 43; }
  SUBCASE("epoch") { world[1].info.epoch = 1; }
  SUBCASE("rank") { source->record.tcp_endpoint = endpoint_of(world, 2); }
  world.open();
  message m(frame_kind::eager, pattern(5, 1), 1);
  m.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[0].up.closings == 1; }));
  CHECK(source->asked == 1);
  CHECK(world[1].up.frames.empty());
  CHECK(world[2].up.frames.empty());
  CHECK_FALSE(m.sent);
}

TEST_CASE("tcp connector: garbage is dropped, and peers still connect") {
  ranks world(2, "secret");
  world.open();
  raw_connection text(endpoint_of(world, 1));
  raw_connection zeros(endpoint_of(world, 1));
  raw_connection quick(endpoint_of(world, 1));
  const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  text.send(request.data(), request.size());
  const std::vector<char> nothing(4096, 0);
  zeros.send(nothing.data(), nothing.size());
  quick.close();
  REQUIRE(world.drive({1}, [&] { return text.ended() && zeros.ended(); }));
  CHECK(world.connect(0, 1));
  CHECK(world[1].up.closings == 0);
}

TEST_CASE("tcp connector: idle unauthenticated peers use a bounded number of places, and are replaced") {
  ranks world(2);
  world.open();
  std::vector<std::unique_ptr<raw_connection>> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(std::make_unique<raw_connection>(endpoint_of(world, 1)));
  message m(frame_kind::eager, pattern(5, 1), 1);
  m.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return m.finished; }));
  CHECK(m.sent);
  // The others are closed after a few seconds.
  REQUIRE(world.drive({1}, [&] {
    for (const auto& c : idle)
      if (!c->ended()) return false;
    return true;
  }));
  CHECK(world[1].up.closings == 0);
}

TEST_CASE("tcp connector: a peer without the secret is refused and gets the reason") {
  ranks world(2, "secret");
  world[0].info.secret = "other";
  world.open();
  message m(frame_kind::eager, pattern(5, 1), 1);
  m.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[0].up.closings == 1; }));
  CHECK(world[0].up.peers[1].why == errc::unauthorized);
  CHECK(contains(world[0].up.peers[1].text, "rank 1 (host host1, pid 1001)"));
  CHECK(world[1].up.closings == 0);
  CHECK(world[1].up.frames.empty());
}

TEST_CASE("tcp connector: ranks and worlds that are not ours are refused") {
  ranks world(2);
  world.open();
  const auto meet = [&](core::identity who, int wanted) {
    unauthenticated_peer s;
    s.start(endpoint_of(world, 1), "", who, wanted);
    REQUIRE(world.drive({1}, [&] {
      s.poll();
      return s.over;
    }));
    return s.code;
  };
  CHECK(meet(rank_of_world(0, 43), 1) == errc::join_failed);
  CHECK(meet(rank_of_world(0), 0) == errc::join_failed);
  CHECK(meet(rank_of_world(2), 1) == errc::join_failed);
  CHECK(meet(rank_of_world(-1), 1) == errc::join_failed);
  CHECK(meet(rank_of_world(1), 1) == errc::join_failed);
  core::identity old = rank_of_world(0);
  old.epoch = 1;
  CHECK(meet(old, 1) == errc::join_failed);
  CHECK(world.connect(0, 1));
  // A second process that claims to be rank 0.
  CHECK(meet(rank_of_world(0), 1) == errc::join_failed);
  CHECK(world.connect(0, 1));
  CHECK(world[1].up.closings == 0);
}

TEST_CASE("tcp connector: a rank that was given up before it connects is told so") {
  ranks world(2);
  world.open();
  world[1].to(0).give_up(errc::peer_failed, "it has been stopped for 30 s");
  REQUIRE(world.drive({1}, [&] { return world[1].up.closings == 1; }));
  message m(frame_kind::eager, pattern(5, 1), 1);
  m.submit(world[0].to(1));
  REQUIRE(world.drive([&] { return world[0].up.closings == 1; }));
  CHECK(world[0].up.peers[1].why == errc::peer_failed);
  CHECK_MESSAGE(contains(world[0].up.peers[1].text, "rank 1 (host host1, pid 1001) has given this rank up"),
                world[0].up.peers[1].text);
  CHECK(m.finished);
  CHECK_FALSE(m.sent);
}

TEST_CASE("tcp connector: a peer that sends garbage after the handshake is disconnected") {
  ranks world(2);
  world.open(1);
  unauthenticated_peer zero;
  zero.start(endpoint_of(world, 1), "", rank_of_world(0), 1);
  REQUIRE(world.drive({1}, [&] {
    zero.poll();
    return zero.over;
  }));
  REQUIRE(zero.answer == core::verdict::accepted);
  frame f;
  f.transfer_id = 1;
  tcp::header h;
  tcp::encode(f, h);
  SUBCASE("text") { h.fill('x'); }
  SUBCASE("one wrong bit") { h[20] ^= 1; }
  SUBCASE("a length that would need a large allocation") {
    f.length = std::uint64_t{1} << 60;
    tcp::encode(f, h);
  }
  const int fd = zero.socket.native_handle();
  CHECK(::send(fd, h.data(), h.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(h.size()));
  REQUIRE(world.drive({1}, [&] { return world[1].up.closings == 1; }));
  CHECK(world[1].up.peers[0].why == errc::protocol);
  CHECK(contains(world[1].up.peers[0].text, "rank 0 (host host0, pid 1000)"));
  CHECK(world[1].up.frames.empty());
}

TEST_CASE("tcp connector: a handshake given up by the accepting side is repeated") {
  ranks world(2);
  // Rank 1's first listener accepts the connection and closes it, like an accepting side at its time limit.
  dead_end impatient;
  const std::string right = world[0].info.peers[1].tcp_endpoint;
  world[0].info.peers[1].tcp_endpoint = impatient.listening.endpoint;
  world.open();
  message m(frame_kind::eager, pattern(5, 1), 1);
  m.submit(world[0].to(1));
  int dropped = 0;
  REQUIRE(world.drive([&] {
    const int fd = ::accept4(impatient.listening.fd.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      ::close(fd);
      if (++dropped == 2) world[0].info.peers[1].tcp_endpoint = right;
    }
    return m.finished;
  }));
  CHECK(m.sent);
  CHECK(dropped >= 2);
  CHECK(world[0].to(1).counters.retries >= 2);
}

TEST_CASE("tcp connector: transports end at any moment of connecting") {
  for (unsigned steps = 0; steps < 40; ++steps) {
    std::vector<std::unique_ptr<message>> sent;
    ranks world(2, "secret");
    world.open();
    raw_connection idle(endpoint_of(world, 1));
    submit_three(world[0], 1, sent);
    submit_three(world[1], 0, sent);
    for (unsigned i = 0; i < steps; ++i) {
      rank& r = world[static_cast<int>(i % 2)];
      r.context.restart();
      r.context.poll_one();
    }
    world[0].transport.reset();
    if (steps % 2 == 0) world[1].transport.reset();
    for (int i = 0; i < 2; ++i) {
      world[i].context.restart();
      world[i].context.poll();
    }
    for (const auto& m : sent)
      if (!world[1].transport) CHECK_FALSE(m->linked());
  }
}

TEST_CASE("tcp connector: IPv6") {
  ::setenv("TUTTI_ADDRESS", "::1", 1);
  std::unique_ptr<ranks> world;
  std::string why;
  try {
    world = std::make_unique<ranks>(2);
  } catch (const tutti::error& e) {
    why = e.what();
  }
  ::unsetenv("TUTTI_ADDRESS");
  if (!world) TUTTI_SKIP("no IPv6 on this machine: " + why);
  CHECK(endpoint_of(*world, 0).starts_with("[::1]:"));
  world->open();
  CHECK(world->connect(0, 1));
}

TEST_CASE("tcp connector: an address from which nothing comes is named long before the timeout") {
  ranks world(2, "", 1s);
  std::uint16_t port = 0;
  const tutti::base::unique_fd full = tutti::test::listening_socket(port);
  REQUIRE(::listen(full.get(), 0) == 0);  // further attempts to connect are dropped
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  std::vector<tutti::base::unique_fd> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::connect(waiting.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  world[0].info.peers[1].tcp_endpoint = "127.0.0.1:" + std::to_string(port);
  world.open();
  message m(frame_kind::eager, pattern(5, 1), 1);
  m.submit(world[0].to(1));
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const tutti::base::unique_fd reader(ends[0]), terminal(::dup(STDERR_FILENO));
  ::dup2(tutti::base::unique_fd(ends[1]).get(), STDERR_FILENO);
  const bool closed = world.drive({0}, [&] { return world[0].up.closings == 1; });
  ::dup2(terminal.get(), STDERR_FILENO);
  REQUIRE(closed);
  CHECK(world[0].up.peers[1].why == errc::timed_out);
  std::string said(4000, ' ');
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(reader.get(), said.data(), said.size()))));
  CHECK(contains(said, ("no answer yet from 127.0.0.1:" + std::to_string(port)).c_str()));
  CHECK(contains(said, "TUTTI_ADDRESS"));
}
