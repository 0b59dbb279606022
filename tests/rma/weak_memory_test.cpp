// SPDX-License-Identifier: Apache-2.0
// Windows in shared memory, as models that run in every way that weak memory allows: the end of a window beside an access of
// another rank, and the data of a signal.
#include "support/weak_memory.hpp"

#include <doctest/doctest.h>
#include <string>

using namespace tutti::test::weak;

namespace {

struct window_orders {
  order counts = order::seq_cst, looks = order::seq_cst;  // of `visit`
  order leaves = order::release;
  order closes = order::seq_cst, waits = order::seq_cst;  // of window_state::close
};
struct window {
  word visitors, mark, memory;
};

thread visits(machine& m, window w, word others_turn, window_orders with) {
  co_await m.add(w.visitors, 1, with.counts);
  const value mark = co_await m.load(w.mark, with.looks);
  if (mark == 1) {
    // Two accesses at once are the program's to order.
    co_await m.until(others_turn, order::acquire, [](value now) { return now == 1; });
    co_await m.write(w.memory, 5);
    co_await m.store(others_turn, 2, order::release);
  }
  co_await m.add(w.visitors, -1, with.leaves);
}
thread closes(machine& m, window w, window_orders with) {
  co_await m.store(w.mark, 0, with.closes);
  co_await m.until(w.visitors, with.waits, [](value now) { return now == 0; });
  co_await m.write(w.memory, 9);  // it is the program's again
}
std::string end_beside_an_access(window_orders with) {
  return explore([=](machine& m) {
           const window w{m.make(0), m.make(1), m.make_plain(0)};
           m.start(visits(m, w, m.make(1), with));
           m.start(closes(m, w, with));
         })
      .wrong;
}

thread puts_signal(machine& m, word memory, word signal, order how) {
  co_await m.write(memory, 5);
  co_await m.add(signal, 1, how);
}
thread adds(machine& m, word signal) { co_await m.add(signal, 1, order::seq_cst); }
thread waits_for_signal(machine& m, word memory, word signal, value least, order how) {
  co_await m.until(signal, how, [least](value now) { return now >= least; });
  const value got = co_await m.read(memory);
  m.check(got == 5, "the data before");
}
std::string signal(order puts, order waits) {
  return explore([=](machine& m) {
           const word memory = m.make_plain(0), word = m.make(0);
           m.start(puts_signal(m, memory, word, puts));
           m.start(adds(m, word));  // by another rank
           m.start(waits_for_signal(m, memory, word, 2, waits));
         })
      .wrong;
}

}  // namespace

TEST_CASE("window weak memory: no access is under way when the memory is the program's again") {
  CHECK(end_beside_an_access({}) == "");
  CHECK(end_beside_an_access({.counts = order::acq_rel, .looks = order::acquire}) == "a data race");
  CHECK(end_beside_an_access({.closes = order::release, .waits = order::acquire}) == "a data race");
  CHECK(end_beside_an_access({.leaves = order::relaxed}) == "a data race");
}

TEST_CASE(
    "window weak memory: who sees a signal sees the data that came before it, also through others' "
    "additions") {
  CHECK(signal(order::seq_cst, order::seq_cst) == "");
  CHECK(signal(order::relaxed, order::seq_cst) == "a data race");
  CHECK(signal(order::seq_cst, order::relaxed) == "a data race");
}
