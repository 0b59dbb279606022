// SPDX-License-Identifier: Apache-2.0
// TLS below the handshake: a man in the middle, and valid certificates.
#include "support/skip.hpp"

#include <doctest/doctest.h>

#ifdef TUTTI_HAVE_TLS

#include "core/tls.hpp"

#include "base/unique_fd.hpp"
#include "core/handshake.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"
#include "support/certificates.hpp"
#include "support/run_task.hpp"
#include "support/scratch_directory.hpp"

#include <sys/socket.h>
#include <unistd.h>

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
using side = core::tls_session::side;
constexpr std::uint64_t world = 11;
constexpr std::size_t preamble_bytes = 12, offer_bytes = 44;

struct pair_of_sockets {
  explicit pair_of_sockets(boost::asio::io_context& context) : near(context), far(context) {
    boost::asio::local::stream_protocol::socket a(context), b(context);
    boost::asio::local::connect_pair(a, b);
    near = core::stream_socket(std::move(a));
    far = core::stream_socket(std::move(b));
  }
  core::stream_socket near, far;
};

core::time_point soon() { return core::deadline_after(20s); }

bytes filled(std::size_t size) {
  bytes made(size);
  for (std::size_t i = 0; i < size; ++i) made[i] = static_cast<std::uint8_t>(i * 7 + (i >> 8));
  return made;
}

// Rank 3 connects to rank 5, and they exchange more than a socket buffers.
constexpr std::size_t told_bytes = 700'000;

task<> calls(core::stream_socket& socket, std::string secret) {
  core::identity mine;
  mine.what = core::purpose::tcp_link;
  mine.world = world;
  mine.rank = 3;
  try {
    co_await core::greet(socket, secret, mine, 5, soon());
    const bytes all = filled(told_bytes);
    co_await core::write_all(socket, all, soon());
    bytes back(told_bytes);
    co_await core::read_exactly(socket, back, soon());
    if (back != all) throw error(errc::truncated, "something else came back");
  } catch (...) {
    socket.close();
    throw;
  }
}

task<> answers(core::stream_socket& socket, std::string secret) {
  try {
    const core::greeting from =
        co_await core::receive_greeting(socket, secret, core::purpose::tcp_link, world, 5, soon());
    if (from.peer.rank != 3) throw error(errc::truncated, "another rank");
    co_await core::answer_greeting(socket, secret, from, core::verdict::accepted, soon());
    bytes all(told_bytes);
    co_await core::read_exactly(socket, all, soon());
    co_await core::write_all(socket, all, soon());
  } catch (...) {
    socket.close();
    throw;
  }
}

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

ends meet(tls_identity calling, tls_identity answering, std::string secret = "s") {
  boost::asio::io_context context;
  pair_of_sockets sockets(context);
  sockets.near.secure_with(std::move(calling));
  sockets.far.secure_with(std::move(answering));
  return run_both(context, calls(sockets.near, secret), answers(sockets.far, secret));
}

tls_identity identity_of(const test::authority::issued& files, const std::string& authority) {
  return make_tls_identity(files.certificate, files.key, authority);
}

}  // namespace

TEST_CASE("tls: without any files both sides connect, and the traffic cannot be read") {
  TUTTI_NEEDS_TLS();
  CHECK(meet(make_tls_identity(), make_tls_identity()).near.code == errc::success);

  boost::asio::io_context context;
  pair_of_sockets client(context), server(context);
  client.near.secure_with(make_tls_identity());
  server.far.secure_with(make_tls_identity());
  // All traffic: after the preambles and the nonce come TLS records, without any of the text.
  bytes seen[2];
  bool over[2] = {false, false};
  failure how[2];
  const auto pass_on = [](core::stream_socket& from, core::stream_socket& to, bytes* all) -> task<> {
    bytes some(4096);
    for (std::size_t got = 1; got > 0;) {
      got = co_await core::read_some(from, some, soon());
      all->insert(all->end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got));
      co_await core::write_all(to, std::span(some).first(got), soon());
    }
  };
  core::background_tasks middle;
  middle.start(note_end(pass_on(client.far, server.near, &seen[0]), &how[0], &over[0]));
  middle.start(note_end(pass_on(server.near, client.far, &seen[1]), &how[1], &over[1]));
  const ends e = run_both(context, calls(client.near, "s"), answers(server.far, "s"));
  CHECK_MESSAGE(e.near.code == errc::success, e.near.text);
  CHECK_MESSAGE(e.far.code == errc::success, e.far.text);
  REQUIRE(seen[0].size() > told_bytes);
  CHECK(seen[0][preamble_bytes] == 0x16);  // a handshake record
  CHECK(seen[1][offer_bytes] == 0x16);
  const bytes text = filled(64);
  for (const bytes& s : seen) CHECK(std::search(s.begin(), s.end(), text.begin(), text.end()) == s.end());
}

TEST_CASE("tls: a closed socket does not write to the descriptor that has its number now") {
  TUTTI_NEEDS_TLS();
  boost::asio::io_context context;
  const tls_identity same = make_tls_identity();
  pair_of_sockets sockets(context);
  sockets.near.secure_with(same);
  sockets.far.secure_with(same);
  run_both(context, calls(sockets.near, "s"), answers(sockets.far, "s"));
  REQUIRE(sockets.near.tls() != nullptr);
  const int number = sockets.near.native_handle();
  sockets.near.close();
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const base::unique_fd here(ends[0]), there(ends[1]);
  REQUIRE((here.get() == number || ::dup2(here.get(), number) == number));
  const base::unique_fd another(here.get() == number ? -1 : number);
  const failure f =
      test::failure_of([&] { test::run_task(context, core::write_all(sockets.near, filled(10), soon())); });
  CHECK_MESSAGE(f.code == errc::cancelled, f.text);
  char byte = 0;
  CHECK(::recv(there.get(), &byte, 1, MSG_DONTWAIT) < 0);
}

TEST_CASE("tls: a man in the middle with sessions to both sides is not authenticated") {
  TUTTI_NEEDS_TLS();
  for (const bool same_certificate : {false, true}) {
    boost::asio::io_context context;
    const tls_identity known = make_tls_identity(), own = make_tls_identity();
    pair_of_sockets client(context), server(context);
    client.near.secure_with(known);
    server.far.secure_with(known);
    const tls_identity used = same_certificate ? known : own;
    client.far.secure_with(used);
    server.near.secure_with(used);
    bytes learnt;
    const auto man_in_the_middle = [](core::stream_socket& c, core::stream_socket& s, bytes* all) -> task<> {
      bytes passing(preamble_bytes);
      co_await core::read_exactly(c, passing, soon());
      co_await core::write_all(s, passing, soon());
      passing.resize(offer_bytes);
      co_await core::read_exactly(s, passing, soon());
      co_await core::write_all(c, passing, soon());
      co_await core::start_tls(c, side::accepting, soon());
      co_await core::start_tls(s, side::connecting, soon());
      passing.resize(84);  // the proof, unencrypted
      co_await core::read_exactly(c, passing, soon());
      *all = passing;
      co_await core::write_all(s, passing, soon());
      passing.resize(40);
      co_await core::read_exactly(s, passing, soon());
      co_await core::write_all(c, passing, soon());
    };
    core::background_tasks middle;
    bool over = false;
    failure how;
    middle.start(note_end(man_in_the_middle(client.far, server.near, &learnt), &how, &over));
    const ends e = run_both(context, calls(client.near, "s"), answers(server.far, "s"));
    CHECK(learnt.size() == 84);
    CHECK_MESSAGE(e.near.code == errc::unauthorized, e.near.text);
    CHECK_MESSAGE(e.far.code == errc::unauthorized, e.far.text);
  }
}

TEST_CASE("tls: if only one side uses TLS, the error says so") {
  TUTTI_NEEDS_TLS();
  for (const bool near : {false, true}) {
    const ends e = meet(near ? make_tls_identity() : nullptr, near ? nullptr : make_tls_identity());
    CHECK(e.near.code == errc::protocol);
    CHECK_MESSAGE(e.near.says("TUTTI_TLS"), e.near.text);
    CHECK_MESSAGE((e.far.code == errc::protocol || e.far.code == errc::peer_failed), e.far.text);
  }
}

TEST_CASE("tls: a wrong secret is reported as a wrong secret") {
  TUTTI_NEEDS_TLS();
  boost::asio::io_context context;
  pair_of_sockets sockets(context);
  for (core::stream_socket* s : {&sockets.near, &sockets.far}) s->secure_with(make_tls_identity());
  const ends e = run_both(context, calls(sockets.near, "one"), answers(sockets.far, "another"));
  CHECK(e.near.code == errc::unauthorized);
  CHECK(e.near.says("TUTTI_SECRET"));
  CHECK(e.far.code == errc::unauthorized);
}

TEST_CASE("tls: certificates must be issued by the authority, valid today, and for this rank") {
  TUTTI_NEEDS_TLS();
  const test::scratch_directory files;
  const std::string directory = files.path().string();
  const test::authority ours(directory, "ours"), others(directory, "others");
  const tls_identity five = identity_of(ours.issue("five", "URI:tutti:rank:5"), ours.file());
  const auto from = [&](const test::authority& by, const char* name, const char* names, int begin = -1,
                        int end = 30) { return identity_of(by.issue(name, names, begin, end), ours.file()); };
  SUBCASE("valid ones") {
    CHECK(meet(from(ours, "any", ""), five).far.code == errc::success);
    CHECK(meet(from(ours, "three", "URI:tutti:rank:3"), five).far.code == errc::success);
    CHECK(meet(from(ours, "more", "DNS:host,URI:tutti:rank:2,URI:tutti:rank:3"), five).far.code ==
          errc::success);
  }
  SUBCASE("of another authority") {
    const ends e = meet(from(others, "unauthenticated", ""), five);
    CHECK_MESSAGE(e.near.code == errc::unauthorized, e.near.text);
    CHECK_MESSAGE(e.near.says("TUTTI_TLS"), e.near.text);
    CHECK_MESSAGE(e.far.code == errc::unauthorized, e.far.text);
    CHECK_MESSAGE(e.far.says("certificate is not accepted"), e.far.text);
  }
  SUBCASE("of no authority") {
    const ends e = meet(make_tls_identity(), five);
    CHECK_MESSAGE(e.near.code == errc::unauthorized, e.near.text);
    CHECK_MESSAGE(e.far.code == errc::unauthorized, e.far.text);
  }
  SUBCASE("with the roles exchanged") {
    const ends e = meet(five, from(others, "impostor", "URI:tutti:rank:5"));
    CHECK_MESSAGE(e.near.code == errc::unauthorized, e.near.text);
    CHECK_MESSAGE(e.near.says("certificate is not accepted"), e.near.text);
    CHECK(e.far.code != errc::success);
  }
  SUBCASE("expired, and not yet valid") {
    const ends late = meet(from(ours, "late", "", -20, -10), five);
    CHECK_MESSAGE(late.far.code == errc::unauthorized, late.far.text);
    CHECK_MESSAGE(late.far.says("expired"), late.far.text);
    CHECK_MESSAGE(late.near.code == errc::unauthorized, late.near.text);
    CHECK_MESSAGE(late.near.says("expired"), late.near.text);
    const ends early = meet(from(ours, "early", "", 10, 20), five);
    CHECK_MESSAGE(early.far.says("not yet valid"), early.far.text);
  }
  SUBCASE("of another rank") {
    const ends claims = meet(from(ours, "four", "URI:tutti:rank:4"), five);
    CHECK_MESSAGE(claims.far.code == errc::unauthorized, claims.far.text);
    CHECK_MESSAGE(claims.far.says("not rank 3"), claims.far.text);
    CHECK_MESSAGE(claims.near.code == errc::unauthorized, claims.near.text);
    CHECK_MESSAGE(claims.near.says("says that this process is not rank 3"), claims.near.text);
    const ends poses =
        meet(from(ours, "three", "URI:tutti:rank:3"), from(ours, "fifty", "URI:tutti:rank:50"));
    CHECK_MESSAGE(poses.near.code == errc::unauthorized, poses.near.text);
    CHECK_MESSAGE(poses.near.says("not rank 5"), poses.near.text);
  }
}

TEST_CASE("tls: errors name missing, invalid or mismatched files") {
  TUTTI_NEEDS_TLS();
  const test::scratch_directory files;
  const std::string directory = files.path().string();
  const test::authority ours(directory, "ours");
  const auto one = ours.issue("one"), two = ours.issue("two");
  const std::string text = files.write("text.pem", "not a certificate");
  const auto refused = [](const std::string& certificate, const std::string& key,
                          const std::string& authority, const char* part) {
    const failure f = test::failure_of([&] { make_tls_identity(certificate, key, authority); });
    CHECK(f.code == errc::invalid_argument);
    CHECK_MESSAGE(f.says(part), f.text);
  };
  refused(one.certificate, one.key, "", "TUTTI_TLS_AUTHORITY");
  refused("", one.key, ours.file(), "all three");
  refused(directory + "/none.pem", one.key, ours.file(), "none.pem");
  refused(text, one.key, ours.file(), "TUTTI_TLS_CERTIFICATE");
  refused(one.certificate, two.key, ours.file(), "TUTTI_TLS_KEY");
  refused(one.certificate, one.key, text, "TUTTI_TLS_AUTHORITY");
}

TEST_CASE("tls: a bit changed in transit ends the connection") {
  TUTTI_NEEDS_TLS();
  boost::asio::io_context context;
  pair_of_sockets client(context), server(context);
  client.near.secure_with(make_tls_identity());
  server.far.secure_with(make_tls_identity());
  const auto pass_on = [](core::stream_socket& from, core::stream_socket& to, std::size_t flip) -> task<> {
    bytes some(4096);
    std::size_t passed = 0;
    try {
      for (std::size_t got = 1; got > 0; passed += got) {
        // The test does not close a failed side; this deadline ends the other direction.
        got = co_await core::read_some(from, some, core::deadline_after(2s));
        if (flip >= passed && flip < passed + got) some[flip - passed] ^= 4;
        co_await core::write_all(to, std::span(some).first(got), soon());
      }
    } catch (const error&) {
    }
    to.close();
  };
  core::background_tasks middle;
  bool over[2] = {false, false};
  failure how[2];
  middle.start(note_end(pass_on(client.far, server.near, 300'000), &how[0], &over[0]));
  middle.start(note_end(pass_on(server.near, client.far, ~std::size_t{0}), &how[1], &over[1]));
  const ends e = run_both(context, calls(client.near, "s"), answers(server.far, "s"));
  CHECK_MESSAGE(e.far.code == errc::unauthorized, e.far.text);
  CHECK(e.near.code != errc::success);
}

#else

TEST_CASE("tls: sessions, certificates, and a man in the middle") {
  TUTTI_SKIP("built without OpenSSL; for it: apt-get install libssl-dev");
}

#endif
