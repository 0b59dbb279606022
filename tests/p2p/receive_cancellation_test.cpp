// SPDX-License-Identifier: Apache-2.0
// Receives cancelled in each phase lose no message, and sends report the fate of theirs: on links in memory,
// step by step, and then at random.
#include "p2p/memory_links.hpp"
#include "support/instrumented.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <map>
#include <memory>
#include <optional>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace tutti::test::memory_links;

namespace {

constexpr errc dropped = errc::success;
constexpr std::array<errc, 3> endings = {dropped, errc::cancelled, errc::timed_out};

// The receive ended with this error, and its buffer has not been written since.
void check_ended(pair_of_ranks& ranks, a_receive& r, errc why) {
  ranks.sides[1].engine.poll();
  CHECK(r.completions == (why == dropped ? -1 : 1));
  if (why != dropped) CHECK(r.transfer.failure() == why);
  CHECK(r.given_back_buffer_intact());
}
void check_has(pair_of_ranks& ranks, a_receive& r, const a_send& s) {
  ranks.settle();
  CHECK(r.completions == 1);
  CHECK(r.transfer.failure() == errc::success);
  CHECK(r.transfer.result.bytes == s.data.size());
  CHECK(r.has(s.data));
  CHECK(r.buffer.margins_intact());
}

// The phase of a message from rank 0 in a receive of rank 1.
enum class half_way {
  arriving_header,   // eager: the header has arrived
  arriving_half,     // eager: half of the payload has arrived
  claiming,          // eager: half had arrived without a receive, and the receive has taken it
  asked_for,         // cts was sent
  first_slice_half,  // half of the first slice has arrived
  some_slices,       // some slices have arrived, and half of the next
  last_slice_half,
  fetch_begun,  // the link reads it from the sender's memory
  fetched_some,
  complete  // not delivered yet
};
constexpr half_way all_ways[] = {
    half_way::arriving_header,  half_way::arriving_half, half_way::claiming,        half_way::asked_for,
    half_way::first_slice_half, half_way::some_slices,   half_way::last_slice_half, half_way::fetch_begun,
    half_way::fetched_some,     half_way::complete};

bool is_fetch(half_way w) { return w == half_way::fetch_begun || w == half_way::fetched_some; }
std::size_t bytes_of(half_way w) {
  return w == half_way::arriving_header || w == half_way::arriving_half || w == half_way::claiming ||
                 w == half_way::complete
             ? 60
             : 5 * slice + 3;
}

// Brings the first message of rank 0 into this phase. Returns the receive.
std::unique_ptr<a_receive> bring(pair_of_ranks& ranks, half_way w, std::size_t room, int source = 0) {
  const auto post = [&] { return std::make_unique<a_receive>(ranks.sides[1], source, 3, room); };
  std::unique_ptr<a_receive> r;
  if (w != half_way::claiming) r = post();
  REQUIRE(ranks.push());
  REQUIRE(ranks.pull());
  if (w == half_way::claiming) {
    REQUIRE(ranks.pull());
    r = post();
    return r;
  }
  if (w == half_way::arriving_header) return r;
  REQUIRE(ranks.pull());  // half of an eager payload; the end of an rts frame
  if (w == half_way::arriving_half || w == half_way::fetch_begun) return r;
  if (w == half_way::complete) {
    REQUIRE(ranks.pull());
    return r;
  }
  if (w == half_way::fetched_some) {
    REQUIRE(ranks.read());
    REQUIRE(ranks.read());
    return r;
  }
  ranks.answer();  // cts
  if (w == half_way::asked_for) return r;
  const int whole = w == half_way::first_slice_half ? 0 : w == half_way::some_slices ? 2 : 5;
  for (int i = 0; i < whole; ++i) {
    REQUIRE(ranks.push());
    for (int part = 0; part < 3; ++part) REQUIRE(ranks.pull());
  }
  REQUIRE(ranks.push());
  REQUIRE(ranks.pull());
  REQUIRE(ranks.pull());
  return r;
}

}  // namespace

TEST_CASE("receive cancellation: a receive cancelled in any phase leaves its message to the next one") {
  for (const half_way w : all_ways) {
    for (const errc why : endings) {
      if (w == half_way::complete && why != dropped) continue;  // too late to cancel: see below
      for (const int source : {0, any_source}) {
        CAPTURE(static_cast<int>(w));
        CAPTURE(static_cast<int>(why));
        CAPTURE(source);
        pair_of_ranks ranks(is_fetch(w));
        {
          a_send send(ranks.sides[0], 3, bytes_of(w), 9);
          auto first = bring(ranks, w, bytes_of(w) + 7, source);
          first->end(why);
          check_ended(ranks, *first, why);
          CHECK(ranks.sides[1].endpoint.counters().given_back == 1);
          ranks.settle();
          check_ended(ranks, *first, why);
          // A probe finds it like any unexpected message.
          p2p::probe looking;
          CHECK(ranks.sides[1].endpoint.start(looking, context, any_source, any_tag));
          CHECK(looking.result.bytes == bytes_of(w));
          CHECK(looking.result.tag == 3);
          a_receive next(ranks.sides[1], source, any_tag, bytes_of(w));
          check_has(ranks, next, send);
          CHECK(send.completions == 1);
          CHECK(send.transfer.failure() == errc::success);
          check_ended(ranks, *first, why);
        }
        ranks.settle();
        CHECK(ranks.nothing_left());
      }
    }
  }
}

TEST_CASE("receive cancellation: the next receive may follow at once, and be cancelled too, repeatedly") {
  for (const half_way w : all_ways) {
    for (const errc why : endings) {
      if (w == half_way::complete && why != dropped) continue;
      CAPTURE(static_cast<int>(w));
      CAPTURE(static_cast<int>(why));
      pair_of_ranks ranks(is_fetch(w));
      {
        a_send send(ranks.sides[0], 3, bytes_of(w), 9);
        std::vector<std::unique_ptr<a_receive>> ended;
        auto one = bring(ranks, w, bytes_of(w));
        for (int i = 0; i < 12; ++i) {
          one->end(one->completions == 0 ? why : dropped);
          ended.push_back(std::move(one));
          one = std::make_unique<a_receive>(ranks.sides[1], 0, 3, bytes_of(w));
          if (one->completions == 1) break;
          if (i % 2 == 0) ranks.pull();
          if (i % 3 == 0) ranks.push();
          if (i % 4 == 0) ranks.read();
          if (i % 5 == 0) ranks.answer();
          ranks.sides[1].engine.poll();
          if (one->completions == 1) break;
        }
        check_has(ranks, *one, send);
        for (const auto& r : ended) CHECK(r->given_back_buffer_intact());
      }
      ranks.settle();
      CHECK(ranks.nothing_left());
    }
  }
}

TEST_CASE("receive cancellation: the message stays ahead of later ones of its sender") {
  for (const half_way w : all_ways) {
    CAPTURE(static_cast<int>(w));
    pair_of_ranks ranks(is_fetch(w));
    {
      a_send first(ranks.sides[0], 3, bytes_of(w), 1);
      auto receive = bring(ranks, w, bytes_of(w));
      a_send second(ranks.sides[0], 3, 20, 2);
      a_send third(ranks.sides[0], 3, 6 * slice, 3);
      receive->end(dropped);
      ranks.settle();
      a_receive one(ranks.sides[1], any_source, any_tag, 6 * slice);
      a_receive two(ranks.sides[1], 0, 3, 6 * slice);
      a_receive three(ranks.sides[1], any_source, 3, 6 * slice);
      check_has(ranks, one, first);
      check_has(ranks, two, second);
      check_has(ranks, three, third);
    }
    ranks.settle();
    CHECK(ranks.nothing_left());
  }
  // Also if the later ones arrived before it was re-queued.
  pair_of_ranks ranks;
  a_send first(ranks.sides[0], 3, 5 * slice, 1);
  auto receive = bring(ranks, half_way::some_slices, 5 * slice);
  a_send second(ranks.sides[0], 3, 20, 2);
  a_send other(ranks.sides[0], 4, 20, 4);
  while (ranks.push()) {
  }
  while (ranks.pull()) {
  }
  receive->end(errc::cancelled);  // complete meanwhile, so:
  ranks.settle();
  CHECK(receive->transfer.failure() == errc::success);
  a_receive next(ranks.sides[1], any_source, any_tag, 50);
  check_has(ranks, next, second);
  a_receive last(ranks.sides[1], any_source, any_tag, 50);
  check_has(ranks, last, other);
}

TEST_CASE("receive cancellation: the oldest posted receive that accepts the message gets it at once") {
  for (const half_way w : all_ways) {
    if (w == half_way::claiming) continue;  // nothing is posted then
    for (const errc why : endings) {
      if (w == half_way::complete && why != dropped) continue;
      CAPTURE(static_cast<int>(w));
      CAPTURE(static_cast<int>(why));
      pair_of_ranks ranks(is_fetch(w));
      {
        a_send send(ranks.sides[0], 3, bytes_of(w), 9);
        auto first = bring(ranks, w, bytes_of(w));
        a_receive wrong(ranks.sides[1], 0, 4, 100);
        a_receive second(ranks.sides[1], any_source, 3, 6 * slice);
        a_receive third(ranks.sides[1], 0, 3, 6 * slice);
        first->end(why);
        check_has(ranks, second, send);
        CHECK(third.completions == 0);
        CHECK(wrong.completions == 0);
        check_ended(ranks, *first, why);
        CHECK(send.completions == 1);
      }
      ranks.settle();
      CHECK(ranks.nothing_left());
    }
  }
}

TEST_CASE("receive cancellation: cancelling a complete receive reports its completion") {
  pair_of_ranks ranks;
  a_send send(ranks.sides[0], 3, 60, 9);
  auto receive = bring(ranks, half_way::complete, 60);
  ranks.sides[1].endpoint.fail(receive->transfer, errc::cancelled, "too late");
  CHECK(receive->completions == 0);
  check_has(ranks, *receive, send);
  // Delivered: dropping it has no effect.
  receive->end(dropped);
  CHECK(ranks.sides[1].endpoint.usage().unexpected == 0);
}

TEST_CASE("receive cancellation: a receive whose message was being truncated reports the truncation") {
  for (const errc why : endings) {
    CAPTURE(static_cast<int>(why));
    pair_of_ranks ranks;
    {
      a_send send(ranks.sides[0], 3, 60, 9);
      a_send next(ranks.sides[0], 3, 20, 10);
      auto receive = bring(ranks, half_way::arriving_half, 40);
      receive->end(why);
      check_ended(ranks, *receive, why == dropped ? dropped : errc::truncated);
      a_receive after(ranks.sides[1], 0, 3, 60);
      check_has(ranks, after, next);
      CHECK(receive->given_back_buffer_intact());
      // A receive that takes one that is arriving reports it at once.
      a_send again(ranks.sides[0], 3, 60, 11);
      a_send last(ranks.sides[0], 3, 20, 12);
      auto claiming = bring(ranks, half_way::claiming, 40);
      CHECK(claiming->completions == 1);
      CHECK(claiming->transfer.failure() == errc::truncated);
      claiming->end(why);
      a_receive whole(ranks.sides[1], 0, 3, 60);
      check_has(ranks, whole, last);
      CHECK(claiming->given_back_buffer_intact());
    }
    CHECK(ranks.nothing_left());
  }
}

TEST_CASE("receive cancellation: a kept message still in transfer that is too long for its next receive") {
  for (const half_way w : {half_way::asked_for, half_way::some_slices}) {
    pair_of_ranks ranks;
    {
      a_send send(ranks.sides[0], 3, bytes_of(w), 9);
      auto first = bring(ranks, w, bytes_of(w));
      first->end(dropped);
      a_receive small(ranks.sides[1], 0, 3, 100);
      CHECK(small.completions == 1);
      CHECK(small.transfer.failure() == errc::truncated);
      ranks.settle();
      CHECK(small.buffer.untouched());
      CHECK(send.completions == 1);
      CHECK(send.transfer.failure() == errc::success);
    }
    CHECK(ranks.nothing_left());
  }
}

TEST_CASE("receive cancellation: without memory the message is lost, and the receive reports it") {
  if (instrumented) TUTTI_SKIP("AddressSanitizer ends the program when memory is refused");
  pair_of_ranks ranks;
  constexpr std::size_t huge = std::size_t{1} << 60;
  std::byte somewhere{};
  watched<p2p::receive> receive;
  p2p::endpoint& me = ranks.sides[1].endpoint;
  CHECK_FALSE(me.start(receive.transfer, context, 0, 3, &somewhere, huge, none));
  frame rts;
  rts.kind = frame_kind::rts;
  rts.context = context;
  rts.tag = 3;
  rts.length = huge;
  rts.transfer_id = 77;
  me.end(0, rts, me.begin(0, rts));
  me.fail(receive.transfer, errc::cancelled, "enough");
  ranks.sides[1].engine.poll();
  CHECK(receive.completions == 1);
  CHECK(receive.transfer.failure() == errc::resources);
  CHECK(receive.transfer.take_text().find("rank 0") != std::string::npos);
  ranks.settle();
  CHECK(ranks.links[1].given_up == errc::success);  // the owner was told
  CHECK(ranks.nothing_left());
  // If it is dropped, before or after the report, the link ends with all its waiting operations.
  for (const bool ended : {false, true}) {
    CAPTURE(ended);
    pair_of_ranks again;
    p2p::endpoint& other = again.sides[1].endpoint;
    {
      watched<p2p::receive> left;
      CHECK_FALSE(other.start(left.transfer, context, 0, 3, &somewhere, huge, none));
      other.end(0, rts, other.begin(0, rts));
      if (ended) other.fail(left.transfer, errc::cancelled, "enough");
      other.release(left.transfer);
      CHECK(left.completions == 0);
    }
    CHECK(again.links[1].given_up == errc::resources);
    again.close(errc::resources, true);
  }
}

TEST_CASE("receive cancellation: the link or the context closes while a kept message arrives") {
  for (const half_way w : all_ways) {
    CAPTURE(static_cast<int>(w));
    for (const bool link : {true, false}) {
      CAPTURE(link);
      pair_of_ranks ranks(is_fetch(w));
      {
        a_send send(ranks.sides[0], 3, bytes_of(w), 9);
        auto receive = bring(ranks, w, bytes_of(w));
        receive->end(dropped);
        if (link) {
          ranks.close(errc::peer_failed, true);
          ranks.settle();
          a_receive next(ranks.sides[1], 0, 3, 6 * slice);
          CHECK(next.completions == 1);
          const bool whole = w == half_way::complete;
          CHECK(next.transfer.failure() == (whole ? errc::success : errc::peer_failed));
        } else {
          ranks.sides[1].endpoint.close_context(context);
          ranks.settle();
          ranks.sides[1].endpoint.open_context(context, ranks.sides[1].listener);
        }
        CHECK(receive->given_back_buffer_intact());
      }
      ranks.settle();
      // An rts without a context waits outside. The cancelled send has removed it.
      CHECK(ranks.nothing_left());
    }
  }
}

// ---- the sender cancels ----

TEST_CASE("receive cancellation: a message cancelled just when it was requested never arrives") {
  pair_of_ranks ranks;
  {
    a_receive first(ranks.sides[1], any_source, 3, 6 * slice);
    a_receive second(ranks.sides[1], 0, 3, 6 * slice);
    a_receive third(ranks.sides[1], any_source, any_tag, 6 * slice);
    auto gone = std::make_unique<a_send>(ranks.sides[0], 3, 5 * slice, 1);
    ranks.push();
    ranks.pull();
    ranks.pull();  // matched, and cts sent
    gone->end(errc::cancelled);
    ranks.settle();
    CHECK(gone->completions == 1);
    CHECK(gone->transfer.failure() == errc::cancelled);
    CHECK(first.completions == 0);
    CHECK(first.buffer.untouched());
    // Each keeps its place in the order of posting.
    a_send one(ranks.sides[0], 3, 5 * slice, 2), two(ranks.sides[0], 3, 20, 3),
        three(ranks.sides[0], 9, 6 * slice, 4);
    check_has(ranks, first, one);
    check_has(ranks, second, two);
    check_has(ranks, third, three);
  }
  CHECK(ranks.nothing_left());
}

TEST_CASE("receive cancellation: after its message is cancelled, a receive matches one that came meanwhile") {
  pair_of_ranks ranks;
  {
    a_receive receive(ranks.sides[1], 0, 3, 6 * slice);
    a_send gone(ranks.sides[0], 3, 5 * slice, 1);
    a_send small(ranks.sides[0], 3, 20, 2);
    ranks.push();
    ranks.pull();
    ranks.pull();
    gone.end(dropped);
    ranks.push();  // the short one
    while (ranks.pull()) {
    }
    CHECK(receive.completions == 0);
    check_has(ranks, receive, small);
  }
  CHECK(ranks.nothing_left());
}

TEST_CASE("receive cancellation: cancelled after its data have begun to arrive") {
  for (const half_way w : {half_way::first_slice_half, half_way::some_slices, half_way::fetched_some}) {
    for (const bool kept : {false, true}) {
      CAPTURE(static_cast<int>(w));
      CAPTURE(kept);
      pair_of_ranks ranks(is_fetch(w));
      {
        a_send send(ranks.sides[0], 3, bytes_of(w), 9);
        auto receive = bring(ranks, w, bytes_of(w));
        if (kept) receive->end(dropped);
        send.end(errc::cancelled);
        ranks.settle();
        CHECK(send.transfer.failure() == errc::cancelled);
        a_send next(ranks.sides[0], 3, 20, 10);
        if (!kept) {
          CHECK(receive->completions == 1);
          CHECK(receive->transfer.failure() == errc::cancelled);
          CHECK(receive->transfer.take_text().find("rank 0 took back") != std::string::npos);
        }
        a_receive after(ranks.sides[1], 0, 3, 100);
        check_has(ranks, after, next);
      }
      CHECK(ranks.nothing_left());
    }
  }
}

TEST_CASE("receive cancellation: a cancelled send whose message still arrives has succeeded") {
  for (const std::size_t bytes : {std::size_t{60}, std::size_t{100}}) {
    for (const errc why : endings) {
      CAPTURE(bytes);
      CAPTURE(static_cast<int>(why));
      pair_of_ranks ranks;
      ranks.links[0].streams = true;
      {
        a_receive receive(ranks.sides[1], 0, 3, 200);
        a_send send(ranks.sides[0], 3, bytes, 9);
        const std::vector<std::byte> sent = send.data;
        if (bytes > longest_eager) {
          ranks.push();
          ranks.pull();
          ranks.pull();
          ranks.answer();
          ranks.push();  // the first of two slices; the other has begun
        }
        send.end(why);
        ranks.settle();
        CHECK(send.completions == (why == dropped ? -1 : 1));
        CHECK(send.transfer.failure() == errc::success);
        CHECK(receive.completions == 1);
        CHECK(receive.transfer.failure() == errc::success);
        CHECK(receive.has(sent));
      }
      CHECK(ranks.nothing_left());
    }
  }
  // The receiver has read all of it and is about to send fin.
  pair_of_ranks ranks(true);
  a_receive receive(ranks.sides[1], 0, 3, 200);
  a_send send(ranks.sides[0], 3, 100, 9);
  ranks.push();
  ranks.pull();
  ranks.pull();
  while (ranks.read()) {
  }
  send.end(errc::cancelled);
  ranks.settle();
  CHECK(send.completions == 1);
  CHECK(send.transfer.failure() == errc::success);
  CHECK(receive.transfer.failure() == errc::success);
}

TEST_CASE("receive cancellation: a message without bytes whose rts frame has left cannot be taken back") {
  // What is left of the window is too little for its node.
  const auto use_up_window = [](side& s) {
    std::vector<std::unique_ptr<a_send>> sent;
    while (s.endpoint.counters().rendezvous == 0) sent.push_back(std::make_unique<a_send>(s, 4, 0, 1));
    return sent;
  };
  for (const errc why : endings) {
    for (const bool early : {false, true}) {
      CAPTURE(static_cast<int>(why));
      CAPTURE(early);
      pair_of_ranks ranks;
      {
        auto first = use_up_window(ranks.sides[0]);
        auto send = std::make_unique<a_send>(ranks.sides[0], 3, 0, 2);
        std::optional<a_receive> receive;
        if (early) receive.emplace(ranks.sides[1], 0, 3, 10);
        while (ranks.push()) {
        }
        while (ranks.pull()) {
        }
        send->end(why);
        CHECK(send->transfer.failure() == errc::success);
        ranks.settle();
        if (!early) receive.emplace(ranks.sides[1], 0, 3, 10);
        ranks.settle();
        CHECK(receive->completions == 1);
        CHECK(receive->transfer.failure() == errc::success);
      }
    }
  }
  // It has come whole: its sender need not live any more.
  pair_of_ranks ranks;
  auto first = use_up_window(ranks.sides[0]);
  a_send send(ranks.sides[0], 3, 0, 2);
  while (ranks.push()) {
  }
  while (ranks.pull()) {
  }
  send.end(errc::cancelled);
  CHECK(send.transfer.failure() == errc::success);
  ranks.close(errc::peer_left, false);
  a_receive receive(ranks.sides[1], 0, 3, 10);
  CHECK(receive.completions == 1);
  CHECK(receive.transfer.failure() == errc::success);
}

TEST_CASE("receive cancellation: an rts frame that leaves after its cancellation is followed by a cancel") {
  pair_of_ranks ranks;
  ranks.links[0].streams = true;
  {
    a_send send(ranks.sides[0], 3, 100, 9);
    send.end(errc::cancelled);
    ranks.settle();
    CHECK(send.transfer.failure() == errc::cancelled);
    CHECK(ranks.sides[1].endpoint.usage().unexpected == 0);
  }
  CHECK(ranks.nothing_left());
}

TEST_CASE("receive cancellation: a message cancelled during its first part does not touch the buffer") {
  pair_of_ranks ranks;
  ranks.links[0].passes = true;
  a_receive receive(ranks.sides[1], 0, 3, 200);
  {
    a_send taken_back(ranks.sides[0], 3, 2 * slice, 9);
    ranks.push();
    ranks.pull();
    ranks.pull();
    ranks.answer();
    ranks.push();
    ranks.pull();  // the header of the first slice,
    ranks.pull();  // and half of it
    taken_back.end(errc::cancelled);
    ranks.push();
    ranks.pull();  // and now the cancel frame passes it
    ranks.pull();
    CHECK(receive.completions == 0);
  }
  a_send other(ranks.sides[0], 3, slice, 10);
  ranks.settle();
  CHECK(receive.completions == 1);
  CHECK(receive.transfer.failure() == errc::success);
  CHECK(receive.transfer.result.bytes == slice);
  CHECK(receive.has(other.data));
  ranks.links[0].passes = false;
  ranks.settle();
  CHECK(receive.has(other.data));
  CHECK(ranks.nothing_left());
}

TEST_CASE("receive cancellation: credit is neither lost nor returned twice") {
  pair_of_ranks ranks;
  for (int i = 0; i < 20'000; ++i) {  // several windows
    ranks.links[0].streams = i % 2 == 0;
    a_send send(ranks.sides[0], 3, 60, 9);
    if (i % 3 == 0) send.end(dropped);
    if (ranks.push()) ranks.pull();
    a_receive gone(ranks.sides[1], 0, 3, 60);
    if (i % 5 == 0) ranks.pull();
    gone.end(errc::cancelled);
    ranks.settle();
    if (ranks.sides[1].endpoint.usage().unexpected > 0) {
      a_receive receive(ranks.sides[1], 0, 3, 60);
      ranks.settle();
      REQUIRE(receive.completions == 1);
    }
  }
  CHECK(ranks.sides[0].endpoint.counters().rendezvous == 0);
  CHECK(ranks.nothing_left());
}

// ---- at random ----

// Messages of three tags in both directions, numbered per tag. Each tag has at most one receive at a time, so
// that messages must be received in order. Sends and receives are cancelled at random points, and their
// buffers overwritten as soon as they are their owners' again. Each successfully sent message is received once, a cancelled one never.
TEST_CASE("receive cancellation: random cancellations lose and duplicate nothing and keep the order") {
  constexpr std::size_t tags = 3;
  const std::uint64_t seed = seed_of_this_run();
  std::uint64_t given_back = 0, fetched = 0, cancelled_sends = 0;
  const std::uint64_t rounds = instrumented ? 60 : 300;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    INFO("replay with TUTTI_TEST_SEED=" << seed + round << " (one round)");
    random_numbers numbers(seed + round);
    const bool shows = numbers.one_in(2);
    pair_of_ranks ranks(shows);
    for (memory_link& l : ranks.links) {
      if (numbers.one_in(2)) l.numbers = &numbers;
      l.scatters = l.numbers != nullptr && numbers.one_in(2);
      l.streams = !shows && numbers.one_in(2);
      l.drains = !l.streams && numbers.one_in(2);
    }
    struct sent_message {
      std::unique_ptr<a_send> send;
      std::uint64_t number;
      std::size_t bytes;
      bool touched = false;  // dropped: may arrive or not
    };
    struct route {  // from rank i to the other, one tag
      std::vector<sent_message> sent;
      std::unique_ptr<a_receive> receive;
      std::vector<std::unique_ptr<a_receive>> ended;
      std::vector<std::uint64_t> received;
    };
    std::array<std::array<route, tags>, 2> routes;
    const auto number_of = [&](std::size_t from, std::size_t tag, std::size_t nth) {
      return (from * tags + tag) * 100'000 + nth;
    };
    // Takes the received message. Returns false if it is none that was sent.
    const auto harvest = [&](std::size_t from, std::size_t tag) {
      route& l = routes[from][tag];
      if (!l.receive || l.receive->completions != 1) return true;
      const std::unique_ptr<a_receive> r = std::move(l.receive);
      if (r->transfer.failure() != errc::success) return r->transfer.failure() == errc::cancelled;
      REQUIRE(r->transfer.result.tag == static_cast<int>(tag));
      for (const sent_message& m : l.sent) {
        if (m.bytes != r->transfer.result.bytes || !r->has(filled(m.bytes, m.number))) continue;
        l.received.push_back(m.number);
        return true;
      }
      return false;
    };
    const std::size_t steps = 100 + numbers.below(500);
    for (std::size_t step = 0; step < steps; ++step) {
      const std::size_t from = numbers.below(2), tag = numbers.below(tags);
      route& l = routes[from][tag];
      side& to = ranks.sides[1 - from];
      switch (numbers.below(12)) {
        case 0:
        case 1: {
          // At least the eight bytes that identify it.
          const std::size_t bytes = 8 + numbers.below(numbers.one_in(2) ? 57 : 5 * slice);
          const std::uint64_t number = number_of(from, tag, l.sent.size());
          l.sent.push_back({std::make_unique<a_send>(ranks.sides[from], static_cast<int>(tag), bytes, number),
                            number, bytes});
          break;
        }
        case 2:
        case 3:
          REQUIRE(harvest(from, tag));
          if (!l.receive)
            l.receive =
                std::make_unique<a_receive>(to, numbers.one_in(2) ? static_cast<int>(from) : any_source,
                                            static_cast<int>(tag), 8 + 5 * slice);
          break;
        case 4:
        case 5:
          ranks.links[from].push();
          break;
        case 6:
        case 7:
          ranks.links[from].pull(to.endpoint, static_cast<int>(from));
          break;
        case 8:
          ranks.links[from].read(ranks.sides[from].endpoint, static_cast<int>(1 - from));
          break;
        case 9:
          to.engine.poll();
          break;
        case 10:
          if (l.receive && l.receive->completions == 0) {
            const errc why = endings[numbers.below(endings.size())];
            const bool complete = l.receive->transfer.at == p2p::receive::phase::done;
            if (why != dropped && complete) {  // reports its completion
              to.endpoint.fail(l.receive->transfer, why, "too late");
              to.engine.poll();
              REQUIRE(harvest(from, tag));
              break;
            }
            l.receive->end(why);
            if (why != dropped) REQUIRE(l.receive->transfer.failure() == why);
            l.ended.push_back(std::move(l.receive));
          }
          break;
        default: {
          if (l.sent.empty() || !numbers.one_in(3)) break;
          sent_message& m = l.sent[numbers.below(l.sent.size())];
          if (m.send->completions != 0 || m.send->transfer.at == p2p::send::phase::done) break;
          const errc why = endings[numbers.below(endings.size())];
          m.send->end(why);
          m.touched = why == dropped;
        }
      }
    }
    // Receives the rest.
    for (bool any = true; any;) {
      any = false;
      ranks.settle();
      for (std::size_t from = 0; from < 2; ++from)
        for (std::size_t tag = 0; tag < tags; ++tag) {
          route& l = routes[from][tag];
          any |= l.receive && l.receive->completions == 1;
          REQUIRE(harvest(from, tag));
          if (!l.receive)
            l.receive = std::make_unique<a_receive>(ranks.sides[1 - from], any_source, static_cast<int>(tag),
                                                    8 + 5 * slice);
          any |= l.receive->completions == 1;
        }
    }
    for (auto& side_routes : routes)
      for (route& l : side_routes) {
        std::size_t next = 0;
        for (const sent_message& m : l.sent) {
          const bool here = next < l.received.size() && l.received[next] == m.number;
          if (here) ++next;
          if (m.touched) continue;
          REQUIRE(m.send->completions == 1);
          const bool success = m.send->transfer.failure() == errc::success;
          cancelled_sends += success ? 0 : 1;
          // Once each and in order of sending; otherwise `next` differs between the sides.
          REQUIRE(here == success);
        }
        REQUIRE(next == l.received.size());
        for (const auto& r : l.ended) REQUIRE(r->given_back_buffer_intact());
        l.receive->end(dropped);
        l.sent.clear();
        l.ended.clear();
      }
    ranks.settle();
    REQUIRE(ranks.nothing_left());
    for (const side& s : ranks.sides) {
      given_back += s.endpoint.counters().given_back;
      fetched += s.endpoint.counters().fetched;
    }
  }
  CHECK(given_back > rounds);
  CHECK(fetched > rounds);
  CHECK(cancelled_sends > rounds);
}
