// SPDX-License-Identifier: Apache-2.0
// The point-to-point protocols on links in memory.
#include "p2p/memory_links.hpp"

#include <doctest/doctest.h>
#include <memory>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace tutti::test::memory_links;

TEST_CASE("endpoint: eager and rendezvous, early and late receivers") {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, longest_eager, longest_eager + 1, 10 * slice + 3}) {
    for (const bool late : {false, true}) {
      CAPTURE(bytes);
      CAPTURE(late);
      pair_of_ranks ranks;
      std::unique_ptr<a_receive> receive;
      if (!late) receive = std::make_unique<a_receive>(ranks.sides[1], 0, 3, bytes);
      a_send send(ranks.sides[0], 3, bytes, 9);
      ranks.settle();
      CHECK(send.completions == (late && bytes > longest_eager ? 0 : 1));
      if (late) receive = std::make_unique<a_receive>(ranks.sides[1], any_source, any_tag, bytes);
      ranks.settle();
      CHECK(send.completions == 1);
      CHECK(send.transfer.failure() == errc::success);
      CHECK(receive->completions == 1);
      CHECK(receive->transfer.failure() == errc::success);
      CHECK(receive->transfer.result.bytes == bytes);
      CHECK(receive->transfer.result.source == 0);
      CHECK(receive->transfer.result.tag == 3);
      CHECK(receive->has(send.data));
      CHECK(receive->buffer.margins_intact());
      CHECK_FALSE(ranks.sides[0].engine.waiting());
      CHECK_FALSE(ranks.sides[1].engine.waiting());
    }
  }
}

TEST_CASE("endpoint: long messages before and after the last generation of a transfer id") {
  constexpr std::size_t bytes = longest_eager + 1;
  pair_of_ranks ranks(false, ~std::uint32_t{0} - 1);
  for (int message = 0; message < 4; ++message) {
    CAPTURE(message);
    const std::uint64_t eager = ranks.sides[0].endpoint.counters().eager;
    a_receive receive(ranks.sides[1], 0, 3, bytes);
    a_send send(ranks.sides[0], 3, bytes, 9);
    ranks.settle();
    CHECK(ranks.sides[0].endpoint.counters().eager == eager);
    CHECK(send.completions == 1);
    CHECK(receive.completions == 1);
    CHECK(receive.has(send.data));
    CHECK(ranks.nothing_left());
  }
}

TEST_CASE("endpoint: a message that the link reads from the sender's memory") {
  constexpr std::size_t bytes = 5 * slice + 3;
  pair_of_ranks ranks(true);
  const auto fetched = [&] { return ranks.sides[1].endpoint.counters().fetched; };
  for (const bool late : {false, true}) {
    CAPTURE(late);
    const std::uint64_t before = fetched();
    std::unique_ptr<a_receive> receive;
    if (!late) receive = std::make_unique<a_receive>(ranks.sides[1], 0, 3, bytes);
    a_send send(ranks.sides[0], 3, bytes, 9);
    ranks.settle();
    if (late) receive = std::make_unique<a_receive>(ranks.sides[1], any_source, any_tag, bytes);
    ranks.settle();
    CHECK(fetched() == before + 1);
    CHECK(send.completions == 1);
    CHECK(send.transfer.failure() == errc::success);
    CHECK(receive->completions == 1);
    CHECK(receive->transfer.failure() == errc::success);
    CHECK(receive->transfer.result.bytes == bytes);
    CHECK(receive->has(send.data));
  }

  // A cancelled message between two others.
  auto receive = std::make_unique<a_receive>(ranks.sides[1], 0, 3, bytes);
  auto send = std::make_unique<a_send>(ranks.sides[0], 3, bytes, 9);
  ranks.links[0].push();
  ranks.links[0].pull(ranks.sides[1].endpoint, 0);
  ranks.links[0].pull(ranks.sides[1].endpoint, 0);
  REQUIRE(ranks.links[1].read(ranks.sides[1].endpoint, 0));
  SUBCASE("the sender cancels") {
    ranks.sides[0].endpoint.release(send->transfer);
    fill(send->data, 1);
    ranks.settle();
    CHECK(receive->completions == 1);
    CHECK(receive->transfer.failure() == errc::cancelled);
  }
  SUBCASE("the receive is cancelled: no more bytes, and the message stays with its sender") {
    ranks.sides[1].endpoint.release(receive->transfer);
    receive->buffer = guarded_buffer(bytes);
    ranks.settle();
    CHECK(receive->buffer.untouched());
    CHECK(send->completions == 0);
    a_receive next(ranks.sides[1], 0, 3, bytes);
    ranks.settle();
    CHECK(next.has(send->data));
    CHECK(send->completions == 1);
    CHECK(send->transfer.failure() == errc::success);
  }
  SUBCASE("the link closes") {
    ranks.close(errc::peer_failed, true);
    ranks.settle();
    CHECK(receive->transfer.failure() == errc::peer_failed);
    CHECK(send->transfer.failure() == errc::peer_failed);
  }
  SUBCASE("the sender was notified twice") {
    ranks.settle();
    CHECK(send->completions == 1);
    frame again;
    again.kind = frame_kind::fin;
    again.transfer_id = send->transfer.transfer_id;
    ranks.sides[0].endpoint.end(1, again, destination_buffer{});
    ranks.settle();
    CHECK(send->completions == 1);
  }
  CHECK(send->completions <= 1);
  ranks.settle();
  CHECK_FALSE(ranks.links[0].shows_anything());
  CHECK_FALSE(ranks.sides[0].engine.waiting());
  CHECK_FALSE(ranks.sides[1].engine.waiting());
}

TEST_CASE("endpoint: a message longer than the receive buffer is not read") {
  pair_of_ranks ranks(true);
  a_receive receive(ranks.sides[1], 0, 3, 4 * slice);
  a_send send(ranks.sides[0], 3, 5 * slice, 9);
  ranks.settle();
  CHECK(receive.transfer.failure() == errc::truncated);
  CHECK(receive.buffer.untouched());
  CHECK(send.completions == 1);
  CHECK(ranks.sides[1].endpoint.counters().fetched == 0);
}

TEST_CASE("endpoint: a context that closes while a message arrives") {
  pair_of_ranks ranks;
  {
    a_send first(ranks.sides[0], 1, 40, 1);
    ranks.links[0].push();
    ranks.links[0].pull(ranks.sides[1].endpoint, 0);  // the header: kept as unexpected
    ranks.sides[1].endpoint.close_context(context);
    ranks.links[0].pull(ranks.sides[1].endpoint, 0);  // the payload
    ranks.settle();
  }
  // Reopened: two messages must not share the memory of one.
  ranks.sides[1].endpoint.open_context(context, ranks.sides[1].listener);
  a_send one(ranks.sides[0], 1, 40, 2);
  a_send two(ranks.sides[0], 2, 40, 3);
  ranks.settle();
  a_receive of_two(ranks.sides[1], 0, 2, 40);
  a_receive of_one(ranks.sides[1], 0, 1, 40);
  CHECK(of_one.completions == 1);
  CHECK(of_two.completions == 1);
  CHECK(of_one.has(one.data));
  CHECK(of_two.has(two.data));
}

TEST_CASE("endpoint: the link closes while an unexpected message arrives") {
  pair_of_ranks ranks;
  a_send send(ranks.sides[0], 1, 40, 1);
  ranks.links[0].push();
  ranks.links[0].pull(ranks.sides[1].endpoint, 0);
  a_receive claimed(ranks.sides[1], 0, 1, 40);
  CHECK(claimed.completions == 0);
  ranks.close(errc::peer_failed, true);
  ranks.settle();
  CHECK(claimed.completions == 1);
  CHECK(claimed.transfer.failure() == errc::peer_failed);
  a_receive next(ranks.sides[1], 0, 1, 40);
  CHECK(next.completions == 1);
  CHECK(next.transfer.failure() == errc::peer_failed);
  CHECK(ranks.sides[1].listener.closed_by == 0);
}

TEST_CASE("endpoint: messages that arrived whole before the link closed are received") {
  pair_of_ranks ranks;
  a_send small(ranks.sides[0], 1, 40, 1);
  a_send large(ranks.sides[0], 2, 400, 1);
  ranks.settle();
  ranks.close(errc::peer_left, false);
  ranks.settle();
  CHECK(small.transfer.failure() == errc::success);
  CHECK(large.transfer.failure() == errc::peer_left);
  a_receive whole(ranks.sides[1], 0, 1, 40);
  CHECK(whole.completions == 1);
  CHECK(whole.has(small.data));
  a_receive rts(ranks.sides[1], 0, 2, 400);
  CHECK(rts.transfer.failure() == errc::peer_left);
}

TEST_CASE("endpoint: before it leaves, a rank sends a frame to the ranks that it has not heard from") {
  pair_of_ranks ranks;
  {
    a_send taken_back(ranks.sides[0], 1, 40, 1);
    ranks.sides[0].endpoint.release(taken_back.transfer);
  }
  REQUIRE(ranks.links[0].idle());
  ranks.sides[0].endpoint.control().meet(1);
  CHECK_FALSE(ranks.links[0].idle());
  ranks.settle();
  CHECK(ranks.sides[1].endpoint.peers().in_touch(0));
  ranks.sides[1].endpoint.control().meet(0);
  CHECK(ranks.links[1].idle());
  CHECK(ranks.nothing_left());
}

TEST_CASE("endpoint: a receive from any source waits for any member, and one that names a rank for it") {
  pair_of_ranks ranks;
  std::vector<p2p::waits> waited(2);
  {
    a_receive any(ranks.sides[1], any_source, any_tag, 10);
    ranks.sides[1].endpoint.mark_waited_for(waited);
    CHECK(waited[0] == p2p::waits::for_any);
    a_receive named(ranks.sides[1], 0, 3, 10);
    ranks.sides[1].endpoint.mark_waited_for(waited);
    CHECK(waited[0] == p2p::waits::for_it);
  }
  waited[0] = p2p::waits::not_at_all;
  ranks.sides[1].endpoint.mark_waited_for(waited);
  CHECK(waited[0] == p2p::waits::not_at_all);
}

TEST_CASE("endpoint: a receive from any source, early or late, ends when all ranks have left") {
  pair_of_ranks ranks;
  a_receive before(ranks.sides[1], any_source, any_tag, 10);
  ranks.close(errc::peer_left, false);
  ranks.settle();
  CHECK(before.transfer.failure() == errc::peer_left);
  a_receive after(ranks.sides[1], any_source, any_tag, 10);
  CHECK(after.completions == 1);
  CHECK(after.transfer.failure() == errc::peer_left);
}

TEST_CASE("endpoint: a failure of the communicator is reported with its reason") {
  pair_of_ranks ranks;
  ranks.sides[0].endpoint.control().send(context, 1,
                                         p2p::failure_message{errc::mismatch, "two different calls"});
  ranks.settle();
  CHECK(ranks.sides[1].listener.failed_by == 0);
  CHECK(ranks.sides[1].listener.reason == errc::mismatch);
  CHECK(ranks.sides[1].listener.failure_text == "two different calls");
  ranks.sides[0].endpoint.control().send(context, 1,
                                         p2p::failure_message{errc::cancelled, std::string(10'000, 'x')});
  ranks.settle();
  CHECK(ranks.sides[1].listener.reason == errc::cancelled);
  CHECK(ranks.sides[1].listener.failure_text.size() >= 1000);
}

TEST_CASE("endpoint: a failure is reported with the failed ranks") {
  pair_of_ranks ranks;
  const std::vector<int> failed{1, 0};
  ranks.sides[0].endpoint.control().send(
      context, 1, p2p::failure_message{errc::peer_failed, "gone", p2p::extent::one, failed});
  ranks.settle();
  CHECK(ranks.sides[1].listener.failure_text == "gone");
  CHECK(ranks.sides[1].listener.failed == failed);
  // Invalid ranks and truncated frames may arrive from outside.
  const std::vector<int> strange{7, 1};
  ranks.sides[0].endpoint.control().send(
      context, 1, p2p::failure_message{errc::peer_failed, "", p2p::extent::one, strange});
  ranks.settle();
  CHECK(ranks.sides[1].listener.failed == std::vector<int>{1});
  CHECK(ranks.sides[1].listener.failure_text.empty());
}

TEST_CASE("endpoint: a failure that arrives before its context is opened is reported then") {
  pair_of_ranks ranks;
  constexpr std::uint32_t later = 40;
  ranks.sides[0].endpoint.control().send(later, 1, p2p::failure_message{errc::mismatch, "before you came"});
  for (std::uint32_t i = 0; i < 200; ++i)
    ranks.sides[0].endpoint.control().send(1000 + i / 2, 1,
                                           p2p::failure_message{errc::cancelled, "of others"});
  ranks.settle();
  CHECK(ranks.sides[1].listener.failed_by == -1);
  owner late;
  ranks.sides[1].endpoint.open_context(later, late);
  ranks.sides[1].endpoint.control().tell_early_failure(later, late);
  CHECK(late.failed_by == -1);  // dropped: only a fixed number is kept
  ranks.sides[0].endpoint.control().send(42, 1, p2p::failure_message{errc::mismatch, "before you came"});
  ranks.settle();
  ranks.sides[1].endpoint.open_context(42, late);
  ranks.sides[1].endpoint.control().tell_early_failure(42, late);
  CHECK(late.failed_by == 0);
  CHECK(late.reason == errc::mismatch);
  CHECK(late.failure_text == "before you came");
  late.failed_by = -1;
  ranks.sides[1].endpoint.control().tell_early_failure(42, late);
  CHECK(late.failed_by == -1);  // reported once
}

TEST_CASE("endpoint: failures of closed contexts do not displace one of a future context") {
  pair_of_ranks ranks;
  owner late;
  constexpr std::uint32_t to_come = 40, closed = 1000;
  ranks.sides[1].endpoint.open_context(closed, late);
  ranks.sides[1].endpoint.close_context(closed);
  ranks.sides[0].endpoint.control().send(to_come, 1, p2p::failure_message{errc::mismatch, "before you came"});
  for (int i = 0; i < 100; ++i)
    ranks.sides[0].endpoint.control().send(closed, 1, p2p::failure_message{errc::cancelled, "too late"});
  ranks.settle();
  ranks.sides[1].endpoint.open_context(to_come, late);
  ranks.sides[1].endpoint.control().tell_early_failure(to_come, late);
  CHECK(late.failure_text == "before you came");
}

TEST_CASE("endpoint: frames for the oldest of many closed contexts are dropped") {
  pair_of_ranks ranks;
  p2p::endpoint& receiver = ranks.sides[1].endpoint;
  owner other;
  constexpr std::uint32_t first = 1000, many = 10'000;
  for (std::uint32_t i = 0; i < many; ++i) {
    receiver.open_context(first + i, other);
    receiver.close_context(first + i);
  }
  const int value = 7;
  p2p::send late;
  late.on_done = [](core::completion&) noexcept {};
  ranks.sides[0].endpoint.start(late, first, 1, 0, &value, sizeof value, {});
  ranks.settle();
  CHECK(receiver.usage().unexpected == 0);
  ranks.sides[0].endpoint.release(late);
}

TEST_CASE("endpoint: forged and late frames match no transfer") {
  pair_of_ranks ranks;
  p2p::endpoint& me = ranks.sides[1].endpoint;
  a_receive waiting(ranks.sides[1], 0, 1, 100);
  std::vector<std::byte> payload(100);
  random_numbers numbers(7);
  for (const frame_kind kind :
       {frame_kind::cts, frame_kind::refuse, frame_kind::cancel, frame_kind::data, frame_kind::fin}) {
    for (int i = 0; i < 200; ++i) {
      frame f;
      f.kind = kind;
      f.context = context;
      f.length = numbers.below(100);
      f.transfer_id = numbers.next();
      f.other_transfer_id = numbers.next();
      const destination_buffer where = me.begin(0, f);
      CHECK(where.room == 0);
      me.end(0, f, where);
      ranks.settle();
    }
  }
  CHECK(waiting.completions == 0);
  CHECK(waiting.buffer.untouched());
}

TEST_CASE("endpoint: a third rank that knows the ids of a transfer of two others does not touch it") {
  constexpr std::size_t bytes = longest_eager + 100;
  pair_of_ranks ranks(false, 1, 3);
  p2p::endpoint& sender = ranks.sides[0].endpoint;
  p2p::endpoint& receiver = ranks.sides[1].endpoint;
  const auto say = [](p2p::endpoint& to, frame_kind kind, std::uint64_t id, std::uint64_t other_id) {
    const frame f{.kind = kind,
                  .context = context,
                  .length = kind == frame_kind::data ? std::uint64_t{10} : std::uint64_t{0},
                  .transfer_id = id,
                  .other_transfer_id = other_id};
    const destination_buffer where = to.begin(2, f);
    CHECK(where.owner == nullptr);
    to.end(2, f, where);
  };
  a_send sent(ranks.sides[0], 3, bytes, 1);
  const std::uint64_t id = sent.transfer.transfer_id;
  REQUIRE(ranks.push());
  REQUIRE(ranks.pull());
  ranks.pull();
  REQUIRE(receiver.usage().unexpected == 1);
  say(receiver, frame_kind::cancel, id, 0);
  CHECK(receiver.usage().unexpected == 1);
  a_receive receive(ranks.sides[1], 0, 3, bytes);
  const std::uint64_t place = receive.transfer.transfer_id;
  REQUIRE(place != 0);
  say(receiver, frame_kind::data, place, 0);
  say(receiver, frame_kind::cancel, id, place);
  CHECK(receive.buffer.untouched());
  for (const frame_kind kind : {frame_kind::cts, frame_kind::refuse, frame_kind::fin})
    say(sender, kind, id, place);
  CHECK(sent.completions == 0);
  CHECK(receive.completions == 0);
  ranks.answer();  // the cts frame of the right rank
  // A second one finds no message that waits for it.
  const frame again{
      .kind = frame_kind::cts, .context = context, .transfer_id = id, .other_transfer_id = place + 1};
  sender.end(1, again, sender.begin(1, again));
  ranks.settle();
  CHECK(sent.completions == 1);
  CHECK(receive.completions == 1);
  CHECK(receive.has(sent.data));
}

// Sends and receives of random sizes are started, released and failed in any order. Links move frames at
// random, may close at any point, and may read long messages from the sender's memory. Each operation
// completes at most once, with its own bytes or an error, in order, and nothing is left.
TEST_CASE("endpoint: random traffic, releases and closes") {
  const std::uint64_t seed = seed_of_this_run();
  std::uint64_t fetched = 0;
  for (std::uint64_t round = 0; round < 300; ++round) {
    CAPTURE(seed);
    CAPTURE(round);
    random_numbers numbers(seed + round);
    pair_of_ranks ranks(numbers.one_in(2));
    for (memory_link& l : ranks.links) {
      l.numbers = &numbers;
      l.scatters = numbers.one_in(2);
    }
    std::array<std::vector<std::unique_ptr<a_send>>, 2> sends;
    std::array<std::vector<std::unique_ptr<a_receive>>, 2> receives;
    const bool closes = numbers.one_in(2);
    bool disturbed = false;  // after a cancellation the test does not know the order of matching
    const std::size_t steps = 50 + numbers.below(400);
    for (std::size_t step = 0; step < steps; ++step) {
      const auto i = numbers.below(2);
      side& s = ranks.sides[i];
      switch (numbers.below(closes ? 9 : 8)) {
        case 0:
        case 1:
          sends[i].push_back(std::make_unique<a_send>(s, 0, numbers.below(4 * slice), sends[i].size()));
          break;
        case 2:
        case 3:
          receives[i].push_back(
              std::make_unique<a_receive>(s, numbers.one_in(2) ? static_cast<int>(1 - i) : any_source,
                                          numbers.one_in(2) ? 0 : any_tag, 4 * slice));
          break;
        case 4:
          ranks.links[i].push();
          break;
        case 5:
          if (numbers.one_in(2)) {
            ranks.links[i].pull(ranks.sides[1 - i].endpoint, static_cast<int>(i));
          } else {
            ranks.links[i].read(s.endpoint, static_cast<int>(1 - i));
          }
          break;
        case 6:
          s.engine.poll();
          break;
        case 7:
          if (!numbers.one_in(8)) break;
          disturbed = true;
          if (!sends[i].empty() && numbers.one_in(2)) {
            a_send& one = *sends[i][numbers.below(sends[i].size())];
            if (numbers.one_in(2)) {
              s.endpoint.fail(one.transfer, errc::cancelled, "cancelled");
            } else if (one.completions == 0) {
              s.endpoint.release(one.transfer);
              one.completions = -1;
              fill(one.data, 999);  // the owner's buffer again
            }
          } else if (!receives[i].empty()) {
            a_receive& one = *receives[i][numbers.below(receives[i].size())];
            if (numbers.one_in(2)) {
              s.endpoint.fail(one.transfer, errc::cancelled, "cancelled");
            } else if (one.completions == 0) {
              s.endpoint.release(one.transfer);
              one.completions = -1;
              one.buffer = guarded_buffer(4 * slice);
            }
          }
          break;
        default:
          if (!numbers.one_in(60)) break;
          disturbed = true;
          ranks.close(errc::peer_failed, numbers.one_in(2));
      }
    }
    ranks.settle();
    if (closes) ranks.close(errc::peer_left, false);
    ranks.settle();
    for (std::size_t i = 0; i < 2; ++i) {
      for (const auto& s : sends[i]) REQUIRE(s->completions <= 1);
      std::size_t nth = 0;
      for (const auto& r : receives[i]) {
        REQUIRE(r->completions <= 1);
        REQUIRE(r->buffer.margins_intact());
        if (r->completions < 0) REQUIRE(r->buffer.untouched());
        if (closes) REQUIRE(r->completions != 0);
        if (r->completions != 1 || r->transfer.failure() != errc::success) continue;
        if (disturbed) {
          // Any message of that length, intact.
          bool found = false;
          for (std::size_t k = 0; k < sends[1 - i].size() && !found; ++k)
            found = r->has(filled(r->transfer.result.bytes, k));
          REQUIRE(found);
          continue;
        }
        const a_send& s = *sends[1 - i][nth++];
        REQUIRE(r->transfer.result.bytes == s.data.size());
        REQUIRE(r->has(s.data));
      }
      if (!disturbed && !closes) {
        const std::size_t pairs = std::min(sends[1 - i].size(), receives[i].size());
        REQUIRE(nth == pairs);
      }
    }
    for (const side& s : ranks.sides) fetched += s.endpoint.counters().fetched;
    for (auto& all : sends) all.clear();
    for (auto& all : receives) all.clear();
    for (const memory_link& l : ranks.links) CHECK_FALSE(l.shows_anything());
    CHECK_FALSE(ranks.sides[0].engine.waiting());
    CHECK_FALSE(ranks.sides[1].engine.waiting());
  }
  CHECK(fetched > 100);
}

TEST_CASE("endpoint: a peer that sends more bytes of a message than it has is rejected") {
  constexpr std::size_t bytes = longest_eager + 40;
  for (const bool given_up : {false, true}) {
    CAPTURE(given_up);
    pair_of_ranks ranks;
    p2p::endpoint& to = ranks.sides[1].endpoint;
    auto receive = std::make_unique<a_receive>(ranks.sides[1], 0, 3, bytes);
    frame rts{.kind = frame_kind::rts, .context = context, .tag = 3, .length = bytes, .transfer_id = 9};
    to.end(0, rts, to.begin(0, rts));
    if (given_up) receive.reset();
    // On one connection the message has begun to come, on another it comes whole.
    const frame data{.kind = frame_kind::data, .length = bytes, .transfer_id = std::uint64_t{1} << 32};
    const destination_buffer begun = to.begin(0, data);
    CHECK(begun.owner != nullptr);
    CHECK(ranks.links[1].given_up == errc::success);
    CHECK(to.begin(0, data).owner == nullptr);
    CHECK(ranks.links[1].given_up == errc::protocol);
    ranks.close(errc::protocol, true);
    ranks.settle();
    if (receive) CHECK(receive->completions == 1);
  }
}

TEST_CASE("endpoint: what a rank sends into a communicator of others has no effect, and it is told so") {
  constexpr std::uint32_t later = context + 2;
  for (const frame_kind kind : {frame_kind::eager, frame_kind::rts, frame_kind::fail, frame_kind::agree,
                                frame_kind::notice, frame_kind::ask, frame_kind::tell})
    for (const bool of_collective : {false, true})
      for (const bool early : {false, true}) {
        CAPTURE(static_cast<int>(kind));
        CAPTURE(of_collective);
        CAPTURE(early);
        pair_of_ranks ranks;
        p2p::endpoint& to = ranks.sides[1].endpoint;
        owner others;
        others.others_are_members = ranks.sides[1].listener.others_are_members = false;
        a_receive receive(ranks.sides[1], any_source, any_tag, 100);
        frame head{.kind = kind, .context = early ? later : context, .tag = 3, .transfer_id = 5};
        if (of_collective) head.fingerprint[0] = std::byte{1};
        to.deliver(0, head, nullptr);
        if (early) to.open_context(later, others);
        const bool is_message = kind == frame_kind::eager || kind == frame_kind::rts;
        const bool is_told = kind != frame_kind::fail && kind != frame_kind::tell && (!early || is_message);
        ranks.settle();
        if (!early) CHECK((ranks.sides[0].listener.reason == errc::protocol) == is_told);
        if (early) CHECK((ranks.sides[0].endpoint.usage().unexpected == 0));
        CHECK(ranks.links[1].given_up == errc::success);
        CHECK(receive.completions == 0);
        CHECK(ranks.sides[1].listener.failed_by == -1);
        CHECK(others.failed_by == -1);
        CHECK(to.usage().unexpected == 0);
        if (early) to.close_context(later);
      }
}

TEST_CASE("endpoint: an outsider's report of a failure does not hide that of a member") {
  constexpr std::uint32_t later = context + 2;
  pair_of_ranks ranks;
  p2p::endpoint& to = ranks.sides[1].endpoint;
  struct first_only final : owner_base {
    bool has_member(int rank) const noexcept override { return rank != 0; }
  } members;
  to.deliver(0, {.kind = frame_kind::fail, .context = later, .tag = 2}, nullptr);
  to.control().keep_failure(later, {errc::timed_out, "from a member"});
  to.open_context(later, members);
  CHECK(members.failure_text.empty());  // told when its owner asks
  to.control().tell_early_failure(later, members);
  CHECK(members.failure_text == "from a member");
  to.close_context(later);
}
