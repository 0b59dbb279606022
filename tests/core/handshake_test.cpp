// SPDX-License-Identifier: Apache-2.0
#include "core/handshake.hpp"

#include "core/running_task.hpp"
#include "core/wakeup.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <string>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using test::failure;

namespace {

using bytes = std::vector<std::uint8_t>;
constexpr std::uint64_t world = 0x1234567890abcdef;

// Both ends of one connection on one io_context.
struct pair_of_sockets {
  explicit pair_of_sockets(boost::asio::io_context& context) : near(context), far(context) {
    boost::asio::local::stream_protocol::socket a(context), b(context);
    boost::asio::local::connect_pair(a, b);
    near = core::stream_socket(std::move(a));
    far = core::stream_socket(std::move(b));
  }
  core::stream_socket near, far;
};

core::identity rank_3() {
  core::identity who;
  who.what = core::purpose::tcp_link;
  who.world = world;
  who.epoch = 7;
  who.rank = 3;
  return who;
}

core::time_point soon() { return core::deadline_after(20s); }

task<> note_end(task<> body, failure* how, bool* done) {
  std::exception_ptr e;
  try {
    co_await std::move(body);
  } catch (...) {
    e = std::current_exception();
  }
  *how = test::describe(e);
  *done = true;
}

// Runs both ends to completion. A task that fails closes its socket, like its owner would.
struct ends {
  failure near, far;
};
ends run_both(boost::asio::io_context& context, task<> near, task<> far) {
  ends result;
  bool near_done = false, far_done = false;
  core::background_tasks tasks;
  tasks.start(note_end(std::move(near), &result.near, &near_done));
  tasks.start(note_end(std::move(far), &result.far, &far_done));
  test::run_until(context, [&] { return near_done && far_done; });
  return result;
}

task<> connecting(core::stream_socket& socket, std::string secret, core::identity mine, std::int32_t wanted,
                  core::verdict* got = nullptr) {
  try {
    const core::verdict v = co_await core::greet(socket, secret, mine, wanted, soon());
    if (got != nullptr) *got = v;
  } catch (...) {
    socket.close();
    throw;
  }
}

task<> accepting(core::stream_socket& socket, std::string secret, std::int32_t my_rank, core::verdict answer,
                 core::greeting* got = nullptr, core::time_point deadline = soon()) {
  try {
    const core::greeting from =
        co_await core::receive_greeting(socket, secret, core::purpose::tcp_link, world, my_rank, deadline);
    if (got != nullptr) *got = from;
    co_await core::answer_greeting(socket, secret, from, answer, deadline);
  } catch (...) {
    socket.close();
    throw;
  }
}

task<> write_bytes(core::stream_socket& socket, bytes what, bool then_close) {
  co_await core::write_all(socket, what, soon());
  if (then_close) socket.close();
}

task<> read_bytes(core::stream_socket& socket, std::size_t number, bytes* into) {
  into->resize(number);
  co_await core::read_exactly(socket, *into, soon());
}

bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

constexpr std::size_t offer_bytes = 44;
constexpr std::size_t claim_bytes = 96;
constexpr std::size_t answer_bytes = 40;

// Forwards bytes from `from` to `to` and flips one of them.
task<> relay(core::stream_socket& from, core::stream_socket& to, std::size_t number, std::size_t flip,
             bytes* seen) {
  bytes passing(number);
  co_await core::read_exactly(from, passing, soon());
  if (seen != nullptr) *seen = passing;
  if (flip < 8 * number) passing[flip / 8] ^= static_cast<std::uint8_t>(1u << (flip % 8));
  co_await core::write_all(to, passing, soon());
}

}  // namespace

TEST_CASE("both sides get the identity of the other") {
  boost::asio::io_context context;
  for (const std::string secret : {"", "correct horse battery staple"}) {
    pair_of_sockets sockets(context);
    core::verdict got{};
    core::greeting from;
    const ends e = run_both(context, connecting(sockets.near, secret, rank_3(), 5, &got),
                            accepting(sockets.far, secret, 5, core::verdict::accepted, &from));
    CHECK_MESSAGE(e.near.code == errc::success, e.near.text);
    CHECK_MESSAGE(e.far.code == errc::success, e.far.text);
    CHECK(got == core::verdict::accepted);
    CHECK(from.peer.what == core::purpose::tcp_link);
    CHECK(from.peer.world == world);
    CHECK(from.peer.epoch == 7);
    CHECK(from.peer.rank == 3);
  }
}

TEST_CASE("the handshake reads no byte beyond itself") {
  boost::asio::io_context context;
  pair_of_sockets sockets(context);
  const ends e = run_both(context, connecting(sockets.near, "s", rank_3(), 5),
                          accepting(sockets.far, "s", -1, core::verdict::accepted));
  REQUIRE(e.near.code == errc::success);
  bytes got;
  test::run_task(context, write_bytes(sockets.near, bytes_of("ping"), false));
  test::run_task(context, read_bytes(sockets.far, 4, &got));
  CHECK(got == bytes_of("ping"));
  test::run_task(context, write_bytes(sockets.far, bytes_of("pong"), false));
  test::run_task(context, read_bytes(sockets.near, 4, &got));
  CHECK(got == bytes_of("pong"));
}

TEST_CASE("a different secret is refused, and both sides get the error") {
  boost::asio::io_context context;
  for (const std::string theirs : {"", "wrong"}) {
    pair_of_sockets sockets(context);
    const ends e = run_both(context, connecting(sockets.near, theirs, rank_3(), 5),
                            accepting(sockets.far, "right", 5, core::verdict::accepted));
    CHECK(e.near.code == errc::unauthorized);
    CHECK(e.near.says("TUTTI_SECRET"));
    CHECK(e.far.code == errc::unauthorized);
  }
}

TEST_CASE("refusals by the accepting side are errors that name the cause") {
  boost::asio::io_context context;
  SUBCASE("another world") {
    pair_of_sockets sockets(context);
    core::identity stale = rank_3();
    stale.world = 1;
    const ends e = run_both(context, connecting(sockets.near, "s", stale, 5),
                            accepting(sockets.far, "s", 5, core::verdict::accepted));
    CHECK(e.near.code == errc::join_failed);
    CHECK(e.near.says("another world"));
    CHECK(e.far.code == errc::join_failed);
  }
  SUBCASE("another kind of listener") {
    pair_of_sockets sockets(context);
    core::identity lost = rank_3();
    lost.what = core::purpose::store;
    const ends e = run_both(context, connecting(sockets.near, "s", lost, 5),
                            accepting(sockets.far, "s", 5, core::verdict::accepted));
    CHECK(e.near.code == errc::join_failed);
    CHECK(e.far.code == errc::join_failed);
  }
  SUBCASE("another rank") {
    pair_of_sockets sockets(context);
    const ends e = run_both(context, connecting(sockets.near, "s", rank_3(), 4),
                            accepting(sockets.far, "s", 5, core::verdict::accepted));
    CHECK(e.near.code == errc::join_failed);
    CHECK(e.near.says("not rank 4"));
    CHECK(e.far.code == errc::join_failed);
  }
  SUBCASE("a rank that is connected already") {
    pair_of_sockets sockets(context);
    const ends e = run_both(context, connecting(sockets.near, "s", rank_3(), 5),
                            accepting(sockets.far, "s", 5, core::verdict::duplicate));
    CHECK(e.near.code == errc::join_failed);
    CHECK(e.near.says("another rank 3"));
    CHECK(e.far.code == errc::success);
  }
  SUBCASE("a verdict that is no error code") {
    pair_of_sockets sockets(context);
    core::verdict got{};
    const ends e = run_both(context, connecting(sockets.near, "s", rank_3(), 5, &got),
                            accepting(sockets.far, "s", 5, core::verdict::use_other));
    CHECK(e.near.code == errc::success);
    CHECK(got == core::verdict::use_other);
  }
}

TEST_CASE("a replayed proof is refused") {
  boost::asio::io_context context;
  const std::string secret = "s";
  bytes claim;
  {
    // An eavesdropper on a connection that succeeds.
    pair_of_sockets client(context), server(context);
    core::verdict got{};
    core::background_tasks middle;
    bool relayed = false;
    failure how;
    const auto pass_on = [](core::stream_socket& c, core::stream_socket& s, bytes* seen) -> task<> {
      co_await relay(s, c, offer_bytes, ~0u, nullptr);
      co_await relay(c, s, claim_bytes, ~0u, seen);
      co_await relay(s, c, answer_bytes, ~0u, nullptr);
    };
    middle.start(note_end(pass_on(client.far, server.near, &claim), &how, &relayed));
    const ends e = run_both(context, connecting(client.near, secret, rank_3(), 5, &got),
                            accepting(server.far, secret, 5, core::verdict::accepted));
    REQUIRE(e.near.code == errc::success);
    REQUIRE(e.far.code == errc::success);
  }
  pair_of_sockets sockets(context);
  const ends e = run_both(context, write_bytes(sockets.near, claim, false),
                          accepting(sockets.far, secret, 5, core::verdict::accepted));
  CHECK(e.far.code == errc::unauthorized);
}

TEST_CASE("a change of any bit of the handshake is detected") {
  boost::asio::io_context context;
  const std::string secret = "s";
  const std::size_t total = 8 * (offer_bytes + claim_bytes + answer_bytes);
  // For a known version, bytes 1 to 7 of the answer have no meaning.
  for (std::size_t bit = 0; bit < total; bit += 3) {
    const std::size_t in_answer = bit / 8 - (offer_bytes + claim_bytes);
    if (bit / 8 > offer_bytes + claim_bytes && in_answer < 8) continue;
    pair_of_sockets client(context), server(context);
    core::background_tasks middle;
    bool relayed = false;
    failure how;
    const auto pass_on = [](core::stream_socket& c, core::stream_socket& s, std::size_t flip) -> task<> {
      try {
        co_await relay(s, c, offer_bytes, flip, nullptr);
        co_await relay(c, s, claim_bytes, flip - 8 * offer_bytes, nullptr);
        co_await relay(s, c, answer_bytes, flip - 8 * (offer_bytes + claim_bytes), nullptr);
      } catch (const error&) {
      }
      c.close();
      s.close();
    };
    middle.start(note_end(pass_on(client.far, server.near, bit), &how, &relayed));
    const ends e = run_both(context, connecting(client.near, secret, rank_3(), 5),
                            accepting(server.far, secret, 5, core::verdict::accepted));
    INFO("bit ", bit);
    CHECK(e.near.code != errc::success);
    // Only the connecting side can detect changes of the answer.
    if (bit < 8 * (offer_bytes + claim_bytes)) CHECK(e.far.code != errc::success);
  }
}

TEST_CASE("a listener without the secret cannot impersonate one with it") {
  boost::asio::io_context context;
  pair_of_sockets sockets(context);
  const auto impostor = [](core::stream_socket& socket) -> task<> {
    bytes offer = bytes_of(std::string("tutti\r\n\0", 8));
    offer.resize(offer_bytes, 0);
    offer[8] = 2;
    co_await core::write_all(socket, offer, soon());
    bytes claim(claim_bytes);
    co_await core::read_exactly(socket, claim, soon());
    // Returning the peer's own proof is not a valid proof.
    bytes answer(answer_bytes, 0);
    answer[0] = static_cast<std::uint8_t>(core::verdict::accepted);
    std::copy(claim.end() - 32, claim.end(), answer.end() - 32);
    co_await core::write_all(socket, answer, soon());
  };
  const ends e = run_both(context, connecting(sockets.near, "s", rank_3(), 5), impostor(sockets.far));
  CHECK(e.near.code == errc::unauthorized);
  CHECK(e.far.code == errc::success);
}

TEST_CASE("unauthenticated peers are recognised from their first bytes") {
  boost::asio::io_context context;
  SUBCASE("by the accepting side") {
    pair_of_sockets sockets(context);
    const ends e =
        run_both(context, write_bytes(sockets.near, bytes_of("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), false),
                 accepting(sockets.far, "s", 5, core::verdict::accepted));
    CHECK(e.far.code == errc::protocol);
  }
  SUBCASE("by the connecting side") {
    pair_of_sockets sockets(context);
    const ends e = run_both(context, connecting(sockets.near, "s", rank_3(), 5),
                            write_bytes(sockets.far, bytes_of("SSH-2.0-OpenSSH_9.2\r\n"), false));
    CHECK(e.near.code == errc::protocol);
    CHECK(e.near.says("not tutti"));
  }
}

TEST_CASE("an error on both sides names the other version") {
  boost::asio::io_context context;
  bytes preamble = bytes_of(std::string("tutti\r\n\0", 8));
  preamble.insert(preamble.end(), {9, 0, 2, 0});
  SUBCASE("the connecting side is newer") {
    pair_of_sockets sockets(context);
    const ends e = run_both(context, write_bytes(sockets.near, preamble, false),
                            accepting(sockets.far, "s", 5, core::verdict::accepted));
    CHECK(e.far.code == errc::protocol);
    CHECK(e.far.says("version 9"));
    bytes answer;
    test::run_task(context, read_bytes(sockets.near, offer_bytes + answer_bytes, &answer));
    CHECK(answer[offer_bytes] == static_cast<std::uint8_t>(core::verdict::wrong_version));
  }
  SUBCASE("the accepting side is newer") {
    pair_of_sockets sockets(context);
    preamble.resize(offer_bytes);
    const ends e = run_both(context, connecting(sockets.near, "s", rank_3(), 5),
                            write_bytes(sockets.far, preamble, false));
    CHECK(e.near.code == errc::protocol);
    CHECK(e.near.says("version 9"));
  }
}

TEST_CASE("a connection that ends during the handshake is an error at once") {
  boost::asio::io_context context;
  bytes begin = bytes_of(std::string("tutti\r\n\0", 8));
  begin.insert(begin.end(), {1, 0, 2, 0, 0, 0});
  for (const std::size_t length : {0u, 1u, 12u, 14u}) {
    pair_of_sockets sockets(context);
    const ends e = run_both(
        context,
        write_bytes(sockets.near, bytes(begin.begin(), begin.begin() + static_cast<long>(length)), true),
        accepting(sockets.far, "s", 5, core::verdict::accepted));
    CHECK(e.far.code == errc::peer_failed);
  }
}

TEST_CASE("a silent peer ends the handshake at the deadline") {
  boost::asio::io_context context;
  SUBCASE("on the accepting side") {
    pair_of_sockets sockets(context);
    const failure f = test::failure_of([&] {
      test::run_task(context, accepting(sockets.far, "s", 5, core::verdict::accepted, nullptr,
                                        core::deadline_after(30ms)));
    });
    CHECK(f.code == errc::timed_out);
  }
  SUBCASE("on the connecting side") {
    pair_of_sockets sockets(context);
    const std::string secret = "s";
    const failure f = test::failure_of([&] {
      test::run_task(context, core::greet(sockets.near, secret, rank_3(), 5, core::deadline_after(30ms)));
    });
    CHECK(f.code == errc::timed_out);
  }
  SUBCASE("if the deadline has passed before") {
    pair_of_sockets sockets(context);
    const std::string secret = "s";
    const failure f = test::failure_of([&] {
      test::run_task(context, core::greet(sockets.near, secret, rank_3(), 5, core::clock::now() - 1s));
    });
    CHECK(f.code == errc::timed_out);
  }
}

TEST_CASE("a handshake may be destroyed at any suspension") {
  boost::asio::io_context context;
  pair_of_sockets sockets(context);
  {
    core::background_tasks tasks;
    tasks.start(accepting(sockets.far, "s", 5, core::verdict::accepted));
    context.poll();
  }
  // Bytes that arrive now are not read.
  test::run_task(context, write_bytes(sockets.near, bytes(1000, 'x'), true));
  context.restart();
  CHECK_NOTHROW(context.poll());
}

TEST_CASE("closing the socket ends the handshake") {
  boost::asio::io_context context;
  pair_of_sockets sockets(context);
  failure how;
  bool done = false;
  core::background_tasks tasks;
  tasks.start(note_end(accepting(sockets.far, "s", 5, core::verdict::accepted), &how, &done));
  context.poll();
  sockets.far.close();
  test::run_until(context, [&] { return done; });
  CHECK(how.code == errc::cancelled);
}
