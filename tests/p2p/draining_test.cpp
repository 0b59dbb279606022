// SPDX-License-Identifier: Apache-2.0
// Transfers over links whose hardware reads and writes buffers by itself: whoever ends a transfer early gets its
// buffer back when it is not in use any more, and not before.
#include "p2p/memory_links.hpp"

#include <doctest/doctest.h>

#include <memory>

using namespace tutti;
using namespace tutti::test;
using namespace tutti::test::memory_links;

namespace {

constexpr std::size_t bytes = 5 * slice + 3;

struct draining_pair : pair_of_ranks {
  draining_pair() {
    for (memory_link& l : links) l.drains = true;
  }
  // Brings a rendezvous from rank 0 to where its first slice is on the way, and, if `begun`, half written.
  void begin_first_slice(bool begun = true) {
    REQUIRE(push());
    REQUIRE(pull());
    REQUIRE(pull());  // the rts frame
    answer();         // the cts frame
    REQUIRE(push());
    if (!begun) return;
    REQUIRE(pull());
    REQUIRE(pull());
  }
};

}  // namespace

TEST_CASE("draining: a cancelled send completes when its slice on the way has arrived") {
  draining_pair ranks;
  {
    a_receive receive(ranks.sides[1], 0, 3, bytes);
    a_send send(ranks.sides[0], 3, bytes, 9);
    ranks.begin_first_slice();
    const std::vector<std::byte> sent = send.data;
    send.end(errc::cancelled);
    ranks.sides[0].engine.poll();
    CHECK(send.completions == 0);
    CHECK(ranks.sides[0].engine.waiting());
    CHECK(send.data == sent);   // it is not its owner's yet
    send.end(errc::timed_out);  // changes nothing
    std::vector<p2p::waits> waited(2);
    ranks.sides[0].endpoint.mark_waited_for(waited);
    CHECK(waited[1] == p2p::waits::for_it);
    REQUIRE(ranks.pull());
    ranks.sides[0].engine.poll();
    CHECK(send.completions == 1);
    CHECK(send.transfer.failure() == errc::cancelled);
    ranks.settle();
    CHECK(receive.completions == 1);
    CHECK(receive.transfer.failure() == errc::cancelled);
  }
  CHECK(ranks.nothing_left());
}

TEST_CASE("draining: a send cancelled when all of it is on the way succeeds") {
  draining_pair ranks;
  a_receive receive(ranks.sides[1], 0, 3, bytes);
  a_send send(ranks.sides[0], 3, bytes, 9);
  const std::vector<std::byte> sent = send.data;
  ranks.begin_first_slice();
  while (ranks.push()) {
  }
  send.end(errc::cancelled);
  CHECK(send.completions == 0);
  ranks.settle();
  CHECK(send.completions == 1);
  CHECK(send.transfer.failure() == errc::success);
  CHECK(receive.completions == 1);
  CHECK(receive.has(sent));
}

TEST_CASE("draining: a dropped transfer waits, and its buffer is then its owner's") {
  draining_pair ranks;
  const std::vector<std::byte> sent = filled(bytes, 9);
  SUBCASE("a send") {
    a_receive receive(ranks.sides[1], 0, 3, bytes);
    auto send = std::make_unique<a_send>(ranks.sides[0], 3, bytes, 9);
    ranks.begin_first_slice();
    SUBCASE("at once") {}
    SUBCASE("while it drains") { send->end(errc::cancelled); }
    send->end(errc::success);
    send.reset();
    ranks.settle();
    CHECK(receive.completions == 1);
    CHECK(receive.transfer.failure() == errc::cancelled);
  }
  SUBCASE("a receive") {
    auto first = std::make_unique<a_receive>(ranks.sides[1], 0, 3, bytes);
    a_send send(ranks.sides[0], 3, bytes, 9);
    ranks.begin_first_slice();
    SUBCASE("at once") {}
    SUBCASE("while it drains") { first->end(errc::cancelled); }
    first->end(errc::success);
    first.reset();
    a_receive next(ranks.sides[1], 0, 3, bytes);
    ranks.settle();
    CHECK(next.completions == 1);
    CHECK(next.has(sent));
  }
  CHECK(ranks.nothing_left());
}

TEST_CASE(
    "draining: a cancelled receive completes when its slice has come, and its message is the next one's") {
  for (const bool at_once : {false, true}) {
    CAPTURE(at_once);
    draining_pair ranks;
    {
      a_receive first(ranks.sides[1], 0, 3, bytes);
      a_send send(ranks.sides[0], 3, bytes, 9);
      ranks.begin_first_slice();
      std::unique_ptr<a_receive> next;
      if (at_once) next = std::make_unique<a_receive>(ranks.sides[1], any_source, 3, bytes);
      first.end(errc::cancelled);
      ranks.sides[1].engine.poll();
      CHECK(first.completions == 0);
      std::vector<p2p::waits> waited(2);
      ranks.sides[1].endpoint.mark_waited_for(waited);
      CHECK(waited[0] == p2p::waits::for_it);
      if (!next) next = std::make_unique<a_receive>(ranks.sides[1], any_source, 3, bytes);
      REQUIRE(ranks.pull());
      ranks.sides[1].engine.poll();
      CHECK(first.completions == 1);
      CHECK(first.transfer.failure() == errc::cancelled);
      ranks.settle();
      CHECK(next->completions == 1);
      CHECK(next->has(send.data));
      CHECK(first.given_back_buffer_intact());
    }
    CHECK(ranks.nothing_left());
  }
}

TEST_CASE("draining: memory of a kept message is used again only when it is not written") {
  draining_pair ranks;
  {
    a_receive first(ranks.sides[1], 0, 3, bytes);
    a_send send(ranks.sides[0], 3, bytes, 9);
    ranks.begin_first_slice(false);
    first.end(errc::cancelled);  // nothing is written yet
    ranks.sides[1].engine.poll();
    CHECK(first.completions == 1);
    REQUIRE(ranks.pull());
    REQUIRE(ranks.pull());  // half of the slice, in the kept message
    a_receive next(ranks.sides[1], 0, 3, bytes);
    a_send other(ranks.sides[0], 4, 60, 11);  // would use that memory
    ranks.settle();
    CHECK(next.completions == 1);
    CHECK(next.has(send.data));
    a_receive last(ranks.sides[1], 0, 4, 60);
    CHECK(last.has(other.data));
  }
  CHECK(ranks.nothing_left());
}

TEST_CASE("draining: a receive whose message is taken back during its first slice does not wait again") {
  draining_pair ranks;
  {
    a_receive receive(ranks.sides[1], 0, 3, bytes);
    {
      a_send send(ranks.sides[0], 3, bytes, 9);
      ranks.begin_first_slice();
      ranks.links[0].passes = true;  // the cancel frame comes before the rest of the slice
      send.end(errc::success);
      REQUIRE(ranks.push());
      REQUIRE(ranks.pull());
      REQUIRE(ranks.pull());
      ranks.links[0].passes = false;
    }
    ranks.sides[1].engine.poll();
    CHECK(receive.completions == 0);
    ranks.settle();
    CHECK(receive.completions == 1);
    CHECK(receive.transfer.failure() == errc::cancelled);
  }
  CHECK(ranks.nothing_left());
}

TEST_CASE("draining: transfers that drain end with their link") {
  draining_pair ranks;
  {
    a_receive receive(ranks.sides[1], 0, 3, bytes);
    a_send send(ranks.sides[0], 3, bytes, 9);
    ranks.begin_first_slice();
    send.end(errc::cancelled);
    receive.end(errc::timed_out);
    ranks.close(errc::peer_failed, true);
    for (memory_link& l : ranks.links) l.hand_back();  // what was queued meanwhile
    for (side& s : ranks.sides) s.engine.poll();
    CHECK(send.completions == 1);
    CHECK(send.transfer.failure() == errc::cancelled);
    CHECK(receive.completions == 1);
    CHECK(receive.transfer.failure() == errc::timed_out);
    CHECK(receive.given_back_buffer_intact());
  }
  CHECK(ranks.nothing_left());
}
