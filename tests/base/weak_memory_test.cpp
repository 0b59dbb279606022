// SPDX-License-Identifier: Apache-2.0
// The explorer of weak memory itself, by programs whose outcomes are known: what C++ allows is found, and what it forbids
// is not.
#include "support/weak_memory.hpp"

#include <doctest/doctest.h>
#include <string>

using namespace tutti::test::weak;

namespace {

thread stores_two(machine& m, word first, word second, order how) {
  co_await m.store(first, 1, order::relaxed);
  co_await m.store(second, 1, how);
}
thread loads_two(machine& m, word second, word first, order how) {
  const value a = co_await m.load(second, how);
  const value b = co_await m.load(first, order::relaxed);
  m.check(a == 0 || b == 1, "seen the second only");
}
std::string message_passing(order stores, order loads) {
  return explore([=](machine& m) {
           const word x = m.make(0), y = m.make(0);
           m.start(stores_two(m, x, y, stores));
           m.start(loads_two(m, y, x, loads));
         })
      .wrong;
}

thread stores_and_loads(machine& m, word mine, word other, word got, bool fenced, order how) {
  co_await m.store(mine, 1, how);
  if (fenced) co_await m.fence(order::seq_cst);
  const value there = co_await m.load(other, how == order::seq_cst ? how : order::acquire);
  const value misses = co_await m.add(got, there == 0 ? 1 : 0, order::relaxed);
  m.check(misses == 0 || there != 0, "both missed the other's store");
}
std::string store_buffering(bool first_fenced, bool second_fenced, order how = order::release) {
  return explore([=](machine& m) {
           const word x = m.make(0), y = m.make(0), misses = m.make(0);
           m.start(stores_and_loads(m, x, y, misses, first_fenced, how));
           m.start(stores_and_loads(m, y, x, misses, second_fenced, how));
         })
      .wrong;
}

thread stores_one(machine& m, word w, value v) { co_await m.store(w, v, order::release); }
thread loads_both(machine& m, word first, word second, word seen, value bit, bool fenced) {
  const value a = co_await m.load(first, order::acquire);
  if (fenced) co_await m.fence(order::seq_cst);
  const value b = co_await m.load(second, order::acquire);
  if (a != 1 || b != 0) co_return;
  const value before = co_await m.add(seen, bit, order::relaxed);
  m.check(before == 0, "two orders of two stores");
}
std::string two_readers(bool fenced) {
  return explore([=](machine& m) {
           const word x = m.make(0), y = m.make(0), seen = m.make(0);
           m.start(stores_one(m, x, 1));
           m.start(stores_one(m, y, 1));
           m.start(loads_both(m, x, y, seen, 1, fenced));
           m.start(loads_both(m, y, x, seen, 2, fenced));
         })
      .wrong;
}

thread loads_twice(machine& m, word w) {
  const value a = co_await m.load(w, order::relaxed);
  const value b = co_await m.load(w, order::relaxed);
  m.check(a <= b, "a word went back");
}
thread counts(machine& m, word w) {
  for (int i = 0; i < 2; ++i) co_await m.add(w, 1, order::relaxed);
}
thread waits_for(machine& m, word w, value v) {
  co_await m.until(w, order::acquire, [v](value now) { return now == v; });
}

thread writes_and_tells(machine& m, word data, word flag, bool fenced, order how) {
  co_await m.write(data, 1);
  if (fenced) co_await m.fence(order::release);
  co_await m.store(flag, 1, how);
}
thread changes(machine& m, word flag) {
  co_await m.until(flag, order::relaxed, [](value now) { return now == 1; });
  co_await m.add(flag, 1, order::relaxed);
}
thread waits_and_reads(machine& m, word data, word flag, value least, bool fenced, order how) {
  co_await m.until(flag, how, [least](value now) { return now >= least; });
  if (fenced) co_await m.fence(order::acquire);
  const value got = co_await m.read(data);
  m.check(got == 1, "old data");
}
std::string handing_over(bool fenced_there, order there, bool fenced_here, order here,
                         bool through_change = false) {
  return explore([=](machine& m) {
           const word data = m.make_plain(0), flag = m.make(0);
           m.start(writes_and_tells(m, data, flag, fenced_there, there));
           if (through_change) m.start(changes(m, flag));
           m.start(waits_and_reads(m, data, flag, through_change ? 2 : 1, fenced_here, here));
         })
      .wrong;
}

}  // namespace

TEST_CASE("weak memory: a message is passed by release and acquire only") {
  CHECK(message_passing(order::release, order::acquire).empty());
  CHECK(message_passing(order::relaxed, order::acquire) == "seen the second only");
  CHECK(message_passing(order::release, order::relaxed) == "seen the second only");
}

TEST_CASE("weak memory: of two that store and then look, one sees the other only if both have a full fence") {
  CHECK(store_buffering(true, true).empty());
  CHECK(store_buffering(true, false) == "both missed the other's store");
  CHECK(store_buffering(false, false) == "both missed the other's store");
  CHECK(store_buffering(false, false, order::seq_cst).empty());
}

TEST_CASE("weak memory: two readers may see two stores in different orders, but not with full fences") {
  CHECK(two_readers(false) == "two orders of two stores");
  CHECK(two_readers(true).empty());
}

TEST_CASE("weak memory: plain memory is handed over by release and acquire, by fences, and through changes") {
  CHECK(handing_over(false, order::release, false, order::acquire).empty());
  CHECK(handing_over(true, order::relaxed, false, order::acquire).empty());
  CHECK(handing_over(false, order::release, true, order::relaxed).empty());
  CHECK(handing_over(false, order::release, false, order::acquire, true).empty());
  CHECK(handing_over(false, order::relaxed, false, order::acquire) == "a data race");
  CHECK(handing_over(false, order::release, false, order::relaxed) == "a data race");
}

TEST_CASE("weak memory: a word never goes back, no addition is lost, and a wait in vain is found") {
  const outcome all = explore([](machine& m) {
    const word w = m.make(0);
    m.start(counts(m, w));
    m.start(counts(m, w));
    m.start(loads_twice(m, w));
    m.start(waits_for(m, w, 4));
  });
  CHECK(all.wrong.empty());
  CHECK(all.states > 50);
  CHECK(explore([](machine& m) {
          const word w = m.make(0);
          m.start(counts(m, w));
          m.start(waits_for(m, w, 3));
        }).wrong == "threads wait for ever");
}
