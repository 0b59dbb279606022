// SPDX-License-Identifier: Apache-2.0
// Matched probes: a message that one has taken goes to its holder, or back to its place. On links in memory,
// step by step, and then over each real transport.
#include "p2p/memory_links.hpp"
#include "support/contains.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::test;
namespace asio = boost::asio;
namespace ml = tutti::test::memory_links;

namespace {

struct a_matched_probe : ml::watched<p2p::probe> {
  explicit a_matched_probe(ml::side& s, int source = any_source, int tag = any_tag) : to(s) {
    transfer.takes = true;
    if (s.endpoint.start(transfer, ml::context, source, tag)) ++completions;
  }
  ~a_matched_probe() { to.endpoint.release(transfer); }
  bool has_taken() const { return transfer.taken != nullptr; }
  ml::side& to;
};

// Receives the message of a probe.
struct a_matched_receive : ml::watched<p2p::receive> {
  a_matched_receive(a_matched_probe& probe, std::size_t room) : to(probe.to), buffer(room) {
    if (to.endpoint.start(transfer, *std::exchange(probe.transfer.taken, nullptr), buffer.span().data(),
                          room))
      ++completions;
  }
  ~a_matched_receive() { to.endpoint.release(transfer); }
  bool has(const std::vector<std::byte>& wanted) {
    return std::equal(wanted.begin(), wanted.end(), buffer.span().begin());
  }
  ml::side& to;
  guarded_buffer buffer;
};

bool finds_nothing(ml::pair_of_ranks& ranks) {
  p2p::probe looking;
  const bool found = ranks.sides[1].endpoint.start(looking, ml::context, any_source, any_tag);
  ranks.sides[1].endpoint.release(looking);
  return !found;
}

// How much of the message has come when the probe takes it.
enum class come { header, half, all, rts };
constexpr come all_parts[] = {come::header, come::half, come::all, come::rts};
std::size_t bytes_of(come part) { return part == come::rts ? 5 * ml::slice + 3 : 60; }

void bring(ml::pair_of_ranks& ranks, come part) {
  REQUIRE(ranks.push());
  const int steps = part == come::header ? 1 : part == come::all ? 3 : 2;
  for (int i = 0; i < steps; ++i) REQUIRE(ranks.pull());
}

}  // namespace

TEST_CASE("matched probe: only its holder receives the message, however much of it has come") {
  for (const come part : all_parts) {
    for (const bool waits : {false, true}) {
      CAPTURE(static_cast<int>(part));
      CAPTURE(waits);
      ml::pair_of_ranks ranks;
      {
        std::optional<a_matched_probe> probe;
        if (waits) probe.emplace(ranks.sides[1]);
        ml::a_send send(ranks.sides[0], 3, bytes_of(part), 9);
        bring(ranks, part);
        if (!waits) probe.emplace(ranks.sides[1]);
        ranks.sides[1].engine.poll();
        CHECK(probe->completions == 1);
        CHECK(probe->transfer.result.bytes == bytes_of(part));
        CHECK(probe->transfer.result.tag == 3);
        CHECK(finds_nothing(ranks));
        ml::a_receive other(ranks.sides[1], any_source, any_tag, 100);
        ranks.settle();
        CHECK(other.completions == 0);
        a_matched_receive mine(*probe, bytes_of(part));
        ranks.settle();
        CHECK(mine.completions == 1);
        CHECK(mine.transfer.failure() == errc::success);
        CHECK(mine.has(send.data));
        CHECK(send.completions == 1);
        CHECK(other.completions == 0);
      }
      ranks.settle();
      CHECK(ranks.nothing_left());
    }
  }
}

TEST_CASE("matched probe: a message that is dropped is queued again in its place") {
  for (const come part : all_parts) {
    for (const bool posted : {false, true}) {
      CAPTURE(static_cast<int>(part));
      CAPTURE(posted);
      ml::pair_of_ranks ranks;
      {
        ml::a_send first(ranks.sides[0], 3, bytes_of(part), 1);
        ml::a_send second(ranks.sides[0], 3, 60, 2);
        bring(ranks, part);
        std::optional<ml::a_receive> receive;
        {
          const a_matched_probe probe(ranks.sides[1]);
          CHECK(probe.has_taken());
          if (posted) receive.emplace(ranks.sides[1], 0, 3, 300);
        }
        ranks.settle();
        if (!posted) receive.emplace(ranks.sides[1], 0, 3, 300);
        ranks.settle();
        CHECK(receive->has(first.data));
        ml::a_receive next(ranks.sides[1], 0, 3, 300);
        ranks.settle();
        CHECK(next.has(second.data));
      }
      CHECK(ranks.nothing_left());
    }
  }
}

TEST_CASE("matched probe: those that wait get one message each, in order, after the receives") {
  ml::pair_of_ranks ranks;
  {
    const a_matched_probe first(ranks.sides[1]);
    const a_matched_probe second(ranks.sides[1], 0, 3);
    p2p::probe plain;
    CHECK(!ranks.sides[1].endpoint.start(plain, ml::context, 0, 3));
    ml::a_receive posted(ranks.sides[1], 0, 3, 60);
    const ml::a_send for_receive(ranks.sides[0], 3, 60, 1);
    ranks.settle();
    CHECK(posted.completions == 1);
    CHECK(!first.has_taken());
    const ml::a_send for_first(ranks.sides[0], 3, 60, 2);
    ranks.settle();
    CHECK(first.has_taken());
    CHECK(!second.has_taken());
    const ml::a_send for_second(ranks.sides[0], 3, 60, 3);
    ranks.settle();
    CHECK(second.has_taken());
    CHECK(plain.result.bytes == 0);
    ranks.sides[1].endpoint.release(plain);
  }
  ml::a_receive one(ranks.sides[1], 0, 3, 60);
  ml::a_receive two(ranks.sides[1], 0, 3, 60);
  CHECK(one.has(filled(60, 2)));
  CHECK(two.has(filled(60, 3)));
  ranks.settle();
  CHECK(ranks.nothing_left());
}

TEST_CASE("matched probe: a receive of it that ends early queues the message again") {
  for (const come part : {come::header, come::half, come::rts}) {
    for (const errc why : {errc::success, errc::cancelled}) {
      CAPTURE(static_cast<int>(part));
      ml::pair_of_ranks ranks;
      {
        ml::a_send send(ranks.sides[0], 3, bytes_of(part), 9);
        bring(ranks, part);
        a_matched_probe probe(ranks.sides[1]);
        {
          a_matched_receive mine(probe, bytes_of(part));
          ranks.answer();
          if (why != errc::success) ranks.sides[1].endpoint.fail(mine.transfer, why, "ended");
        }
        ml::a_receive next(ranks.sides[1], 0, 3, bytes_of(part));
        ranks.settle();
        CHECK(next.has(send.data));
        CHECK(send.completions == 1);
      }
      CHECK(ranks.nothing_left());
    }
  }
}

TEST_CASE("matched probe: the sender takes the message back, or goes, between the probe and the receive") {
  enum class end { taken_back, gone_before, gone_during, taken_back_during, dropped_after };
  for (const end what :
       {end::taken_back, end::gone_before, end::gone_during, end::taken_back_during, end::dropped_after}) {
    for (const come part : all_parts) {
      const bool takes_back = what == end::taken_back || what == end::taken_back_during;
      if (takes_back && part != come::rts) continue;
      CAPTURE(static_cast<int>(what));
      CAPTURE(static_cast<int>(part));
      ml::pair_of_ranks ranks;
      {
        ml::a_send send(ranks.sides[0], 3, bytes_of(part), 9);
        bring(ranks, part);
        a_matched_probe probe(ranks.sides[1]);
        std::optional<a_matched_receive> mine;
        if (what == end::gone_during || what == end::taken_back_during) mine.emplace(probe, bytes_of(part));
        if (takes_back)
          send.end(errc::cancelled);
        else
          ranks.close(errc::peer_left, true);
        ranks.settle();
        if (what == end::dropped_after) continue;
        if (!mine) mine.emplace(probe, bytes_of(part));
        ranks.settle();
        CHECK(mine->completions == 1);
        if (part == come::all) {
          CHECK(mine->has(send.data));
        } else {
          CHECK(mine->transfer.failure() == (takes_back ? errc::cancelled : errc::peer_left));
        }
      }
      ranks.settle();
      CHECK(ranks.nothing_left());
    }
  }
}

namespace {

constexpr int messages_of_each = 200;
std::size_t size_of(std::uint64_t number) {
  constexpr std::size_t some[] = {0, 8, 500, 5'000, 70'000, 300'000};
  return some[number % std::size(some)];
}

// Messages of unknown length for one of several coroutines, whichever is free.
task<> worker(communicator world, std::vector<int>* seen, int* left) {
  while (*left > 0) {
    --*left;
    matched_message m = co_await world.matched_probe(any_source, any_tag);
    // Lets the others run while the message is held.
    co_await asio::post(world.get_executor(), asio::deferred);
    std::vector<std::byte> data(m.status().bytes);
    const status st = co_await m.recv(data);
    const auto number = static_cast<std::uint64_t>(st.tag);
    TUTTI_EXPECT(st.source == m.status().source);
    TUTTI_EXPECT(st.bytes == size_of(number));
    TUTTI_EXPECT(data == filled(size_of(number), number));
    ++(*seen)[number];
  }
}
task<> many_workers(communicator world) {
  std::vector<std::vector<std::byte>> out;
  std::vector<request> sending;
  for (std::uint64_t i = 0; i < messages_of_each; ++i) {
    const std::uint64_t number = i * 2 + static_cast<std::uint64_t>(world.rank());
    out.push_back(filled(size_of(number), number));
    sending.push_back(world.isend(out.back(), 1, static_cast<int>(number)));
  }
  if (world.rank() == 1) {
    std::vector<int> seen(2 * messages_of_each);
    int left = 2 * messages_of_each;  // of rank 0, and of this rank itself
    co_await when_all(worker(world, &seen, &left), worker(world, &seen, &left), worker(world, &seen, &left),
                      worker(world, &seen, &left));
    TUTTI_EXPECT(std::accumulate(seen.begin(), seen.end(), 0) == 2 * messages_of_each);
    TUTTI_EXPECT(*std::min_element(seen.begin(), seen.end()) == 1);
  }
  for (request& s : sending) co_await s;
}

struct counting_receiver {
  int* got;
  communicator* world;
  void set_value(matched_message m) {
    TUTTI_EXPECT(m.status().bytes == sizeof(int));
    ++*got;
  }  // and drops it
  void set_error(boost::system::error_code) { *got = -100; }
  void set_stopped() { *got = -1000; }
};

asio::awaitable<void> from_asio(communicator world, int* got) {
  matched_message m = co_await world.matched_probe(1, 5);
  int x = 0;
  co_await m.recv(x);
  *got += x;
}

task<> every_form(communicator world) {
  if (world.rank() == 1) {
    for (int i = 1; i <= 6; ++i) co_await world.send(i, 0, 5);
    co_await world.barrier();
    co_return;
  }
  int got = 0;
  auto connected = world.matched_probe(1, 5).connect(counting_receiver{&got, &world});
  connected.start();
  while (got == 0) co_await asio::post(world.get_executor(), asio::deferred);
  TUTTI_EXPECT(got == 1);
  got = 0;
  co_await asio::co_spawn(world.get_executor(), from_asio(world, &got), asio::deferred);
  TUTTI_EXPECT(got == 1);  // the first again
  bool called = false;
  world.matched_probe(1, 5)([&](boost::system::error_code e, matched_message m) {
    TUTTI_EXPECT(!e && m.status().tag == 5);
    called = true;
  });
  while (!called) co_await asio::post(world.get_executor(), asio::deferred);
  basic_request<matched_message> probing = start(world.matched_probe(1, 5));
  matched_message second = co_await probing;
  request receiving = start(second.recv(got));
  co_await receiving;
  TUTTI_EXPECT(got == 2);
  matched_message third = co_await with_timeout(world.matched_probe(1, 5), patience);
  auto fourth = co_await as_result(world.matched_probe(1, 5));
  TUTTI_EXPECT(fourth && fourth.value.status().source == 1);
  auto first = co_await when_any(world.matched_probe(1, 5), world.matched_probe(0, 5));
  TUTTI_EXPECT(first.index() == 0);
  third = matched_message();  // dropped
  co_await world.recv(got, 1, 5);
  TUTTI_EXPECT(got == 3);
  co_await fourth.value.recv(got);
  TUTTI_EXPECT(got == 4);
  co_await std::get<0>(first).recv(got);
  TUTTI_EXPECT(got == 5);
  start(world.matched_probe(1, 5)).cancel();  // a completed one, dropped with its message
  co_await world.recv(got, 1, 5);
  TUTTI_EXPECT(got == 6);
  co_await world.barrier();
}

task<> wrong_uses(communicator world) {
  int x = 0;
  matched_message none;
  bool refused = false;
  try {
    co_await none.recv(x);
  } catch (const error& e) {
    refused = e.code() == errc::invalid_argument;
  }
  TUTTI_EXPECT(refused);
  const int seven = 7;
  request sending = world.isend(seven, 0, 1);
  matched_message m = co_await world.matched_probe(0, 1);
  const failure null = co_await failure_in(m.recv(std::span<int>(static_cast<int*>(nullptr), 3)));
  TUTTI_EXPECT(null.code == errc::invalid_argument);
  operation<status> later = m.recv(x);
  const matched_message other = std::move(m);
  co_await std::move(later);
  TUTTI_EXPECT(x == 7);
  co_await sending;
  request to_self = world.isend(seven, 0, 1);
  matched_message again = co_await world.matched_probe();
  co_await again.recv(x);
  co_await to_self;
  const failure twice = co_await failure_in(again.recv(x));
  TUTTI_EXPECT(twice.code == errc::invalid_argument);
  TUTTI_EXPECT(contains(twice.text, "received already"));
  const std::array<int, 3> long_one = {1, 2, 3};
  request three = world.isend(long_one, 0, 2);
  matched_message longer = co_await world.matched_probe();
  const failure cut = co_await failure_in(longer.recv(x));
  TUTTI_EXPECT(cut.code == errc::truncated);
  co_await three;
}

task<> nothing_comes(communicator world) {
  const auto r = co_await as_result(with_timeout(world.matched_probe(0, 9), std::chrono::milliseconds(20)));
  TUTTI_EXPECT(r.error == errc::timed_out);
  TUTTI_EXPECT(contains(r.message, "matched_probe from rank 0"));
}

// The message is in the hands of rank 0 when rank 1 leaves, and when all handles of the communicator go.
task<> kept_longer(communicator world, std::size_t bytes, std::optional<matched_message>* outlives) {
  const std::vector<std::byte> data = filled(bytes, 4);
  communicator pair = co_await world.duplicate();
  if (world.rank() == 1) {
    request sending = pair.isend(data, 0);
    co_await world.recv(bytes, 0);
    co_return;
  }
  matched_message m = co_await pair.matched_probe();
  const int seven = 7;
  request own = pair.isend(seven, 0);
  outlives->emplace(co_await pair.matched_probe(0));
  pair = communicator();
  std::vector<std::byte> got(m.status().bytes);
  if (bytes < 1000) {
    co_await world.send(bytes, 1);
    co_await m.recv(got);
    TUTTI_EXPECT(got == data);
    co_return;
  }
  co_await world.send(bytes, 1);
  // Its sender takes the message back as it leaves: whichever this rank hears of first.
  const failure f = co_await failure_in(world.recv(bytes, 1, 99));
  TUTTI_EXPECT(f.code == errc::peer_left);
  const failure lost = co_await failure_in(m.recv(got));
  TUTTI_EXPECT(lost.code == errc::cancelled || lost.code == errc::peer_left);
}

}  // namespace

TEST_CASE("matched probe: several coroutines receive messages of unknown length") {
  for (const std::string& transport : transports) run_local(2, over(transport), many_workers);
}
TEST_CASE("matched probe: awaited, by handlers and receivers, started, and within other awaitables") {
  run_local(2, every_form);
}
TEST_CASE("matched probe: wrong uses say so") { run_local(1, wrong_uses); }
TEST_CASE("matched probe: a timeout names it") { run_local(1, nothing_comes); }
TEST_CASE("matched probe: a message outlives its sender, its communicator and its runtime") {
  for (const std::string& transport : transports)
    for (const std::size_t bytes : {100UL, 1'000'000UL}) {
      std::optional<matched_message> outlives;
      run_local(2, over(transport),
                [&](communicator world) { return kept_longer(std::move(world), bytes, &outlives); });
      CHECK(outlives->status().bytes == sizeof(int));
    }
}
