// SPDX-License-Identifier: Apache-2.0
// The words and slots of collective_segment, as a model that runs in every way that weak memory allows: two ranks, with one
// slot each, call collectives in which one of them has data for the other, which need not wait for it.
#include "support/weak_memory.hpp"

#include <doctest/doctest.h>
#include <string>

using namespace tutti::test::weak;

namespace {

constexpr auto relaxed = order::relaxed, acquire = order::acquire, release = order::release;

struct segment_orders {
  order stamp_store = release, stamp_load = acquire;
  order finished_store = release, finished_load = acquire;
  bool waits_for_room = true;     // collective_segment::room_for
  value finished_by_arrival = 1;  // check_arrival: a rank at operation n has finished all before it
};
struct part {
  word stamp, payload, finished;
};

value sent_in(int operation) { return static_cast<value>(10 * operation); }

// `roots`: bit n is the rank that has data in operation n.
thread calls_collectives(machine& m, part mine, part other, int rank, int operations, unsigned roots,
                         segment_orders with) {
  value other_finished = 0;
  for (int n = 1; n <= operations; ++n) {
    const bool is_root = static_cast<int>(roots >> n & 1) == rank;
    if (is_root) {
      if (with.waits_for_room && other_finished < n - 1)
        other_finished = co_await m.until(other.finished, with.finished_load,
                                          [n](value finished) { return finished >= n - 1; });
      co_await m.write(mine.payload, sent_in(n));
      co_await m.store(mine.stamp, static_cast<value>(n), with.stamp_store);
    } else {
      co_await m.until(other.stamp, with.stamp_load, [n](value stamp) { return stamp == n; });
      other_finished = static_cast<value>(n - with.finished_by_arrival);
      const value got = co_await m.read(other.payload);
      m.check(got == sent_in(n), "the data of another operation");
    }
    co_await m.store(mine.finished, static_cast<value>(n), with.finished_store);
  }
}
// The memory of a part may have other contents once can_go() says so.
thread calls_and_goes(machine& m, part mine, part other, int operations, bool waits) {
  for (int n = 1; n <= operations; ++n) {
    co_await m.until(other.finished, acquire, [n](value finished) { return finished >= n - 1; });
    co_await m.write(mine.payload, sent_in(n));
    co_await m.store(mine.stamp, static_cast<value>(n), release);
    co_await m.store(mine.finished, static_cast<value>(n), release);
  }
  if (waits)
    co_await m.until(other.finished, acquire, [=](value finished) { return finished >= operations; });
  co_await m.write(mine.payload, -1);
}

part make_part(machine& m) { return {m.make(0), m.make_plain(0), m.make(0)}; }

std::string collectives(segment_orders with) {
  for (unsigned roots = 0; roots < 8; ++roots) {  // of three operations
    const outcome one = explore([=](machine& m) {
      const part a = make_part(m), b = make_part(m);
      m.start(calls_collectives(m, a, b, 0, 3, roots << 1, with));
      m.start(calls_collectives(m, b, a, 1, 3, roots << 1, with));
    });
    if (!one.wrong.empty()) return one.wrong;
  }
  return "";
}
std::string end_of_a_segment(bool waits) {
  return explore([=](machine& m) {
           const part a = make_part(m), b = make_part(m);
           m.start(calls_and_goes(m, a, b, 2, waits));
           m.start(calls_collectives(m, b, a, 1, 2, 0, {}));
         })
      .wrong;
}

}  // namespace

TEST_CASE("collective_segment weak memory: each operation's data, in slots that are used again") {
  CHECK(collectives({}) == "");
  CHECK(collectives({.stamp_store = relaxed}) == "a data race");
  CHECK(collectives({.stamp_load = relaxed}) == "a data race");
  CHECK(collectives({.finished_store = relaxed}) == "a data race");
  CHECK(collectives({.finished_load = relaxed}) == "a data race");
  CHECK(collectives({.waits_for_room = false}) != "");
  CHECK(collectives({.finished_by_arrival = -1}) == "a data race");
}

TEST_CASE("collective_segment weak memory: a part keeps its contents until all have read them") {
  CHECK(end_of_a_segment(true) == "");
  CHECK(end_of_a_segment(false) == "a data race");
}
