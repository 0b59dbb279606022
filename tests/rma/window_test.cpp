// SPDX-License-Identifier: Apache-2.0
// Windows in every world of tests/coll/conformance: in place and by requests give the same result, also when
// operations are cancelled at random; what is wrong is named.
#include "coll/conformance/worlds.hpp"
#include "comm/world.hpp"
#include "rma/window_state.hpp"
#include "support/contains.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

// Runs main(world, shared) in every world, with windows in ordinary memory and in shared.
template <class F>
void in_every_world(F main) {
  for (const setting& where : settings())
    for (const bool shared : {false, true}) {
      CAPTURE(where.transport);
      CAPTURE(where.ranks);
      CAPTURE(where.hosts);
      CAPTURE(shared);
      const scoped_variable hosts("TUTTI_HOST_ID", where.hosts);
      run_local(where.ranks, options_for(where),
                [main, shared](communicator world) { return main(std::move(world), shared); });
    }
}

// A window's memory of either kind.
template <class T>
struct memory {
  memory(bool shared, std::size_t count, T value = {})
      : ordinary(shared ? 0 : count, value), in_shared(shared ? count : 0, value), is_shared(shared) {}
  std::span<T> span() { return is_shared ? std::span<T>(in_shared) : std::span<T>(ordinary); }
  std::vector<T> ordinary;
  shared_vector<T> in_shared;
  bool is_shared;
};

std::uint32_t value_of(int from, int to, std::size_t i) {
  return static_cast<std::uint32_t>(from * 1000003 + to * 10007) + static_cast<std::uint32_t>(i);
}

auto at_least(std::uint64_t least) {
  return [least](std::uint64_t now) { return now >= least; };
}

// ---- everything once ----

// Each rank writes its block in every window; all look at all.
task<> put_everywhere(communicator world, bool shared) {
  const int me = world.rank(), ranks = world.size();
  for (const std::size_t block : {std::size_t{1}, std::size_t{777}, std::size_t{150'001}}) {
    memory<std::uint32_t> mine(shared, block * static_cast<std::size_t>(ranks));
    window w = co_await world.window(mine.span());
    std::vector<std::uint32_t> out(block), in(mine.span().size());
    for (int to = 0; to < ranks; ++to) {
      for (std::size_t i = 0; i < block; ++i) out[i] = value_of(me, to, i);
      co_await w.put_signal(out, to, block * static_cast<std::size_t>(me), 3);
      std::ranges::fill(out, 0U);  // it may be changed
    }
    const std::uint64_t came = co_await w.wait_signal(3, at_least(static_cast<std::uint64_t>(ranks)));
    TUTTI_EXPECT(came == static_cast<std::uint64_t>(ranks));
    TUTTI_EXPECT(w.signal(3) == came);
    const auto check = [&](std::span<const std::uint32_t> all, int of) {
      for (int from = 0; from < ranks; ++from)
        for (std::size_t i = 0; i < block; ++i)
          TUTTI_EXPECT(all[block * static_cast<std::size_t>(from) + i] == value_of(from, of, i));
    };
    check(mine.span(), me);
    co_await world.barrier();
    for (int from = 0; from < ranks; ++from) {
      co_await w.get(in, from);
      check(in, from);
    }
    co_await world.barrier();  // before any rank drops its window
  }
}

// Puts, flushed, are there when the others look.
task<> put_and_flush(communicator world, bool shared) {
  const int me = world.rank(), right = (me + 1) % world.size(), left = (me + world.size() - 1) % world.size();
  memory<double> mine(shared, 100'000);
  window w = co_await world.window(mine.span(), {.signals = 1});
  std::vector<double> out(mine.span().size());
  for (int round = 1; round <= 3; ++round) {
    std::iota(out.begin(), out.end(), me * 1e6 + round);
    co_await w.put(std::span(out).first(10), right);
    co_await w.put(std::span(out).subspan(10), right, 10);
    co_await w.flush(right);
    co_await world.barrier();
    for (std::size_t i = 0; i < out.size(); ++i)
      TUTTI_EXPECT(mine.span()[i] == left * 1e6 + round + static_cast<double>(i));
    co_await world.barrier();
  }
}

task<> count_atomically(communicator world, bool shared) {
  const int ranks = world.size();
  constexpr int each = 50;
  memory<char> mine(shared, 1);
  window w = co_await world.window(mine.span(), {.signals = 2});
  std::vector<std::uint64_t> tickets;
  for (int i = 0; i < each; ++i) tickets.push_back(co_await w.fetch_add(0, 0, 1));
  TUTTI_EXPECT(std::ranges::is_sorted(tickets));
  TUTTI_EXPECT(std::ranges::adjacent_find(tickets) == tickets.end());
  // A counter by compare_exchange: every success adds one.
  for (int i = 0; i < each;) {
    const std::uint64_t now = co_await w.fetch_add(0, 1, 0);
    const std::uint64_t before = co_await w.compare_exchange(0, 1, now, now + 1);
    if (before == now) ++i;
  }
  co_await world.barrier();
  if (world.rank() == 0) {
    const auto all = static_cast<std::uint64_t>(each * ranks);
    TUTTI_EXPECT(w.signal(0) == all);
    TUTTI_EXPECT(w.signal(1) == all);
  }
  std::uint64_t sum_of_tickets = std::accumulate(tickets.begin(), tickets.end(), std::uint64_t{0});
  co_await world.all_reduce(sum_of_tickets, sum);
  const auto n = static_cast<std::uint64_t>(each * ranks);
  TUTTI_EXPECT(sum_of_tickets == n * (n - 1) / 2);  // each ticket was given once
  co_await world.barrier();
}

task<> accumulate_in_all(communicator world, bool shared) {
  const int ranks = world.size();
  memory<std::int64_t> numbers(shared, 70'000, 1);
  memory<float16> halves(shared, 1000, float16(1));
  window w = co_await world.window(numbers.span());
  window h = co_await world.window(halves.span());
  const std::vector<std::int64_t> add(numbers.span().size() - 1, world.rank() + 1);
  const std::vector<float16> twice(10, float16(2));
  for (int to = 0; to < ranks; ++to) {
    co_await w.accumulate(add, to, 1, sum);
    co_await w.accumulate(std::int64_t{world.rank() + 10}, to, 0, max);
    co_await h.accumulate(twice, to, 990, product);
  }
  for (int to = 0; to < ranks; ++to) {
    co_await w.flush(to);
    co_await h.flush(to);
  }
  co_await world.barrier();
  for (std::size_t i = 1; i < numbers.span().size(); ++i)
    TUTTI_EXPECT(numbers.span()[i] == 1 + ranks * (ranks + 1) / 2);
  TUTTI_EXPECT(numbers.span()[0] == ranks + 9);
  TUTTI_EXPECT(static_cast<float>(halves.span()[989]) == 1);
  TUTTI_EXPECT(static_cast<float>(halves.span()[999]) == static_cast<float>(1 << ranks));
  co_await world.barrier();
}

// Until it is let go, rank 1 does not turn its loop, so that what others ask of it does not happen.
class sleeping_rank {
 public:
  void sleep() {
    const auto until = std::chrono::steady_clock::now() + patience;
    sleeps_ = true;
    while (sleeps_ && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }
  task<> wait() const {
    while (!sleeps_) co_await sleep_for(100us);
  }
  void let_go() { sleeps_ = false; }

 private:
  std::atomic<bool> sleeps_{false};
};

task<> keep_the_order(communicator world, bool shared, sleeping_rank* one) {
  memory<int> mine(shared, 4);
  window w = co_await world.window(mine.span(), {.signals = 2});
  const int other = 1 - world.rank();
  co_await w.fetch_add(other, 1, 1);  // knows its place
  co_await world.barrier();
  if (world.rank() == 1) {
    one->sleep();
    co_await w.wait_signal(0, at_least(1));
    TUTTI_EXPECT(mine.span()[3] == 5);  // put before the signal, which has no data
    co_await world.barrier();
    one->sleep();
  } else {
    co_await one->wait();
    co_await w.put(5, 1, 3);
    co_await w.put_signal(std::span<const int>(), 1, 0, 0);
    one->let_go();
    co_await world.barrier();
    co_await one->wait();
    co_await w.accumulate(2, 1, 3, sum);
    for (int again = 0; again < 2; ++again) {  // a flush that ended early has flushed nothing
      const failure early = co_await failure_in(with_timeout(w.flush(1), 3ms));
      TUTTI_EXPECT(early.code == errc::timed_out);
    }
    request waiting = start(w.flush(1));  // nor has one that waits
    const failure second = co_await failure_in(with_timeout(w.flush(1), 3ms));
    TUTTI_EXPECT(second.code == errc::timed_out);
    one->let_go();
    co_await waiting;
    int there = 0;
    co_await w.get(there, 1, 3);
    TUTTI_EXPECT(there == 7);
  }
  co_await world.barrier();
}

// Ranks of one host exchange no message for shared memory once they know each other.
task<> put_without_messages(communicator world) {
  shared_vector<std::uint64_t> mine(200'000);
  window w = co_await world.window(std::span(mine), {.signals = 1});
  const int other = 1 - world.rank();
  std::vector<std::uint64_t> out(mine.size(), 5);
  std::uint64_t all = 0;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, mine.size()}) {
    const std::uint64_t before = counters_of(world).sends;
    co_await w.put_signal(std::span(out).first(count), other, 0, 0);
    co_await w.fetch_add(other, 0, 1);
    co_await w.flush(other);
    co_await w.wait_signal(0, at_least(all += 2));
    TUTTI_EXPECT(std::ranges::count(std::span(mine).first(count), 5U) == static_cast<std::ptrdiff_t>(count));
    if (count > 0) TUTTI_EXPECT(counters_of(world).sends == before);
    co_await world.barrier();
  }
}

// ---- random operations, cancelled at random moments ----

struct block_of_random {
  static constexpr std::size_t count = 40'000;  // 320 KB: more than one slice
  std::size_t first, size;
};

block_of_random block_in(random_numbers& numbers) {
  const std::size_t size = numbers.one_in(3) ? numbers.below(block_of_random::count) : numbers.below(40);
  return {numbers.below(block_of_random::count - size), size};
}

// Every rank owns a block of each window, and writes only there: each element is what its last put that completed
// has written, or one that was cancelled later. Its tag counts the writes.
task<> random_puts(communicator world, bool shared, std::uint64_t seed) {
  const int me = world.rank(), ranks = world.size();
  constexpr std::size_t count = block_of_random::count;
  memory<std::uint64_t> mine(shared, count * static_cast<std::size_t>(ranks));
  window w = co_await world.window(mine.span());
  random_numbers numbers(seed + static_cast<std::uint64_t>(me));
  const std::size_t base = count * static_cast<std::size_t>(me);
  struct element {
    std::uint64_t least = 0, most = 0;  // number of the write that it has
  };
  std::vector<std::vector<element>> model(static_cast<std::size_t>(ranks), std::vector<element>(count));
  std::vector<std::uint64_t> out(count), in(count);
  std::vector<std::uint64_t> added(static_cast<std::size_t>(ranks)),
      uncertain(static_cast<std::size_t>(ranks));
  for (std::uint64_t round = 1; round <= (instrumented ? 20U : 40U); ++round) {
    const int to = static_cast<int>(numbers.below(static_cast<std::size_t>(ranks)));
    std::vector<element>& theirs = model[static_cast<std::size_t>(to)];
    const block_of_random b = block_in(numbers);
    const auto buffer = std::span(out).first(b.size);
    std::ranges::fill(buffer, round);
    const auto wait = std::chrono::microseconds(numbers.below(300));
    const bool ends_early = numbers.one_in(3);
    std::error_code why;
    switch (numbers.below(3)) {
      case 0:
      case 1: {
        const bool signals = numbers.one_in(2);
        if (signals && ends_early) {
          why = (co_await failure_in(with_timeout(w.put_signal(buffer, to, base + b.first, me), wait))).code;
        } else if (signals) {
          co_await w.put_signal(buffer, to, base + b.first, me);
        } else if (ends_early) {
          why = (co_await failure_in(with_timeout(w.put(buffer, to, base + b.first), wait))).code;
        } else {
          co_await w.put(buffer, to, base + b.first);
        }
        TUTTI_EXPECT(!why || why == errc::timed_out);
        std::ranges::fill(buffer, ~std::uint64_t{0});  // nobody reads it any more
        for (std::size_t i = b.first; i < b.first + b.size; ++i)
          theirs[i] = {!why ? round : theirs[i].least, round};
        if (signals) ++(!why ? added : uncertain)[static_cast<std::size_t>(to)];
        break;
      }
      default: {
        const auto result = std::span(in).first(b.size);
        if (ends_early) {
          why = (co_await failure_in(with_timeout(w.get(result, to, base + b.first), wait))).code;
          TUTTI_EXPECT(!why || why == errc::timed_out);
          std::ranges::fill(result, 7U);
          co_await sleep_for(100us);
          TUTTI_EXPECT(std::ranges::count(result, 7U) == std::ssize(result));  // nobody writes to it any more
          break;
        }
        co_await w.get(result, to, base + b.first);
        for (std::size_t i = 0; i < b.size; ++i) {
          const element& e = theirs[b.first + i];
          // A get by request comes behind the puts of this rank, and one in place after them.
          TUTTI_EXPECT(result[i] >= e.least);
          TUTTI_EXPECT(result[i] <= e.most);
        }
      }
    }
  }
  for (int to = 0; to < ranks; ++to) co_await w.flush(to);
  co_await world.barrier();
  for (int of = 0; of < ranks; ++of) {
    co_await w.get(in, of, base);
    for (std::size_t i = 0; i < count; ++i) {
      const element& e = model[static_cast<std::size_t>(of)][i];
      TUTTI_EXPECT(in[i] >= e.least);
      TUTTI_EXPECT(in[i] <= e.most);
    }
    const std::uint64_t signalled = co_await w.fetch_add(of, me, 0);
    const auto o = static_cast<std::size_t>(of);
    TUTTI_EXPECT(signalled >= added[o]);
    TUTTI_EXPECT(signalled <= added[o] + uncertain[o]);
  }
  co_await world.barrier();
}

// ---- waits ----

task<> signal_later(window<int>* w, int to, std::chrono::milliseconds wait) {
  co_await sleep_for(wait);
  co_await w->fetch_add(to, 0, 1);
}

task<> wait_in_all_ways(communicator world, bool shared) {
  memory<int> mine(shared, 4);
  window w = co_await world.window(mine.span(), {.signals = 2});
  // A deadline ends it, and the window goes on.
  const failure late = co_await failure_in(with_timeout(w.wait_signal(0, at_least(1)), 2ms));
  TUTTI_EXPECT(late.code == errc::timed_out);
  TUTTI_EXPECT(contains(late.text, "wait_signal, signal 0"));
  const auto first = co_await when_any(w.wait_signal(1, at_least(1)), sleep_for(1ms));
  TUTTI_EXPECT(first.index() == 1);
  co_await world.barrier();
  // A sleeping rank wakes for a signal of its neighbour.
  const int right = (world.rank() + 1) % world.size();
  auto both = co_await when_all(w.wait_signal(0, at_least(1)), signal_later(&w, right, 3ms));
  TUTTI_EXPECT(std::get<0>(both) == 1);
  // A request, and an exception of the predicate.
  auto waiting = start(w.wait_signal(1, at_least(5)));
  for (int i = 0; i < 5; ++i) co_await w.fetch_add(right, 1, 1);
  const std::uint64_t five = co_await waiting;
  TUTTI_EXPECT(five == 5);
  const auto throws = [](std::uint64_t) -> bool { throw std::runtime_error("no number is good"); };
  const failure thrown = co_await failure_in(w.wait_signal(0, throws));
  TUTTI_EXPECT(contains(thrown.text, "no number is good"));
  co_await world.barrier();
  // Waits of a window that is dropped end.
  if (world.rank() == 0) {
    auto left = start(w.wait_signal(0, at_least(100)));
    w = {};
    const failure gone = co_await failure_awaiting(&left);
    TUTTI_EXPECT(gone.code == errc::shut_down);
  }
  co_await world.barrier();  // the other ranks keep theirs: where none is left, a wait ends by that
}

// ---- errors ----

task<> ask_for_too_much(communicator world, bool shared) {
  const auto mine_has = static_cast<std::size_t>(10 + world.rank());  // sizes differ
  memory<float> mine(shared, mine_has, 5);
  window w = co_await world.window(mine.span(), {.signals = 3 + world.rank()});
  const int right = (world.rank() + 1) % world.size();
  const auto theirs = static_cast<std::size_t>(10 + right);
  std::vector<float> buffer(theirs, 6);
  for (int i = 0; i < 2; ++i) {  // before and after their sizes are known
    const failure f = co_await failure_in(w.put(buffer, right, 1));
    TUTTI_EXPECT(f.code == errc::invalid_argument);
    TUTTI_EXPECT(contains(f.text, std::to_string(theirs) +
                                      " elements from element 1 on end past the window of rank " +
                                      std::to_string(right)));
  }
  const failure far = co_await failure_in(w.get(std::span(buffer).first(1), right, ~std::size_t{0} / 2));
  TUTTI_EXPECT(far.code == errc::invalid_argument);
  const failure nowhere = co_await failure_in(w.put(buffer, world.size()));
  TUTTI_EXPECT(contains(nowhere.text, "is outside the window"));
  const failure no_signal = co_await failure_in(w.fetch_add(right, 3 + right, 1));
  TUTTI_EXPECT(contains(no_signal.text, std::to_string(3 + right) + " signals"));
  const failure not_mine = co_await failure_in(w.wait_signal(-1, at_least(0)));
  TUTTI_EXPECT(not_mine.code == errc::invalid_argument);
  co_await w.put(std::span(buffer).first(0), right, theirs);
  co_await world.barrier();
  TUTTI_EXPECT(std::ranges::count(mine.span(), 5.0F) == std::ssize(mine.span()));
  co_await world.barrier();
}

task<> use_a_window_that_another_dropped(communicator world, bool shared) {
  if (world.size() == 1) co_return;
  memory<int> mine(shared, 4, 1);
  std::optional<window<int>> w(co_await world.window(mine.span()));
  int x = 2;
  if (world.rank() != 0) co_await w->put(x, 0, 0);
  if (world.rank() != 0) co_await w->flush(0);
  co_await world.barrier();
  std::optional<basic_request<std::uint64_t>> ended;  // and not awaited
  if (world.rank() == 0) {
    ended = start(w->wait_signal(0, at_least(100)));
    w.reset();
    std::ranges::fill(mine.span(), 3);
  }
  co_await world.barrier();
  if (world.rank() != 0) {
    const failure f = co_await failure_in(w->get(x, 0, 0));
    TUTTI_EXPECT(f.code == errc::peer_left);
    const failure atomic = co_await failure_in(w->fetch_add(0, 0, 1));
    TUTTI_EXPECT(atomic.code == errc::peer_left);
    const failure put = co_await failure_in(w->put(x, 0, 0));
    TUTTI_EXPECT(put.code == errc::peer_left);
  }
  co_await world.barrier();
  if (world.rank() == 0) TUTTI_EXPECT(std::ranges::count(mine.span(), 3) == 4);
}

task<> mismatch(communicator world) {
  std::vector<float> floats(4);
  std::vector<double> doubles(4);
  failure f;
  if (world.rank() == 1)
    f = co_await failure_in(world.window(std::span(doubles)));
  else
    f = co_await failure_in(world.window(std::span(floats)));
  TUTTI_EXPECT(f.code == errc::mismatch);
  TUTTI_EXPECT(contains(f.text, "window(float)"));
  TUTTI_EXPECT(contains(f.text, "window(double)"));
}

// ---- a rank that asks for what no rank does ----

// The window's own. It lives as long as the window.
comm::communicator_state& communicator_of(const window<int>& w) { return *w.flush(0).what().comm; }

task<> send_raw(communicator world, rma::request r, std::uint64_t length) {
  int mine = 7;
  window w = co_await world.window(std::span(&mine, 1), {.signals = 1});
  comm::communicator_state& c = communicator_of(w);
  const p2p::peers& all = c.endpoint().peers();
  if (world.rank() == 0) {
    const std::vector<std::byte> data(length);
    p2p::send out;
    out.on_done = [](core::completion&) noexcept {};
    c.endpoint().start(out, c.numbers().messages(), 1, r.tag(), data.data(), data.size(), r.print());
    while (!all.gone(1)) co_await sleep_for(1ms);
    c.endpoint().release(out);
  } else {
    while (!all.gone(0)) co_await sleep_for(1ms);
    TUTTI_EXPECT(all[0].gone.code == errc::protocol);
    TUTTI_EXPECT(mine == 7);
    TUTTI_EXPECT(w.signal(0) == 0);
  }
}

// Rank 0 itself answers the first request of rank 1, which asks for its part of the window.
task<> answer_falsely(communicator world, std::vector<std::byte> answer) {
  int mine = 7;
  window w = co_await world.window(std::span(&mine, 1), {.signals = 1});
  comm::communicator_state& c = communicator_of(w);
  const p2p::peers& all = c.endpoint().peers();
  if (world.rank() == 0) {
    c.endpoint().set_taker(c.numbers().messages(), nullptr);
    co_await world.barrier();
    while (c.endpoint().usage().unexpected == 0) co_await sleep_for(1ms);
    p2p::send out;
    out.on_done = [](core::completion&) noexcept {};
    c.endpoint().start(out, c.numbers().messages(), 1, rma::request{.number = 1}.tag(), answer.data(),
                       answer.size(), p2p::point_to_point);
    while (!all.gone(1)) co_await sleep_for(1ms);
    c.endpoint().release(out);
  } else {
    co_await world.barrier();
    int theirs = 0;
    const failure f = co_await failure_in(w.get(theirs, 0, 0));
    TUTTI_EXPECT(f.code == errc::protocol);
    while (!all.gone(0)) co_await sleep_for(1ms);
    TUTTI_EXPECT(all[0].gone.code == errc::protocol);
    TUTTI_EXPECT(theirs == 0);
  }
}

}  // namespace

TEST_CASE("windows: put_signal, wait_signal and get in all pairs") { in_every_world(put_everywhere); }
TEST_CASE("windows: a flushed put is in memory") { in_every_world(put_and_flush); }
TEST_CASE("windows: no signal overtakes a put, and no flush ends before what it waits for") {
  for (const std::string& transport : transports)
    for (const bool shared : {false, true}) {
      CAPTURE(transport);
      CAPTURE(shared);
      sleeping_rank one;
      run_local(2, over(transport), [shared, &one](communicator world) {
        return keep_the_order(std::move(world), shared, &one);
      });
    }
}
TEST_CASE("windows: fetch_add and compare_exchange lose no count") { in_every_world(count_atomically); }
TEST_CASE("windows: accumulates of all ranks") { in_every_world(accumulate_in_all); }
TEST_CASE("windows: in shared memory of one host no message is sent") {
  run_local(2, over("shm"), put_without_messages);
}
TEST_CASE("windows: waits in when_any, when_all and under a deadline, and of a dropped window") {
  in_every_world(wait_in_all_ways);
}
TEST_CASE("windows: what ends past a window is refused by its origin") { in_every_world(ask_for_too_much); }
TEST_CASE("windows: nothing is written in a window that was dropped") {
  in_every_world(use_a_window_that_another_dropped);
}

TEST_CASE("windows: random operations that are cancelled at random") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  in_every_world(
      [seed](communicator world, bool shared) { return random_puts(std::move(world), shared, seed); });
}

TEST_CASE("windows: ranks that disagree on the element type are told of both") {
  for (const std::string& transport : transports) run_local(3, over(transport), mismatch);
}

TEST_CASE("windows: a hostile rank is cut off, and nothing is written") {
  using is = rma::request::kind;
  const std::pair<rma::request, std::uint64_t> attacks[] = {
      {{.is = is::put, .at = 1}, 4},
      {{.is = is::put, .at = 0}, 8},
      {{.is = is::put, .at = (std::uint64_t{1} << 56) - 4}, 8},
      {{.is = is::put, .at = 0}, 3},
      {{.is = is::put_signal, .number = 1, .at = 0}, 4},
      {{.is = is::put_signal, .number = 0, .at = 0}, 8},
      {{.is = is::put, .at = 4}, 300'000},
      {{.is = is::get, .at = 0, .operand = ~std::uint64_t{0}}, 0},
      {{.is = is::get, .at = 4, .operand = 4}, 0},
      {{.is = is::get, .at = 0, .operand = 4}, 4},
      {{.is = is::accumulate, .at = 0, .operand = 1}, 8},
      {{.is = is::accumulate, .at = 0, .operand = 200}, 4},
      {{.is = is::accumulate, .at = 0, .operand = static_cast<std::uint64_t>(reduce_kind::none)}, 4},
      {{.is = is::fetch_add, .at = 1, .operand = 1}, 0},
      {{.is = is::fetch_add, .at = 0, .operand = 1}, 8},
      {{.is = is::compare_exchange, .at = 0}, 0},
      {{.is = is::flush}, 1},
      {{.is = is::attach}, 1},
      {{.is = static_cast<is>(12)}, 0},
      {{.is = is::answer}, 0},
  };
  for (const std::string& transport : transports)
    for (const auto& [r, length] : attacks) {
      CAPTURE(transport);
      CAPTURE(static_cast<int>(r.is));
      CAPTURE(length);
      const rma::request sent = r;
      const std::uint64_t bytes = length;
      run_local(2, over(transport),
                [sent, bytes](communicator world) { return send_raw(std::move(world), sent, bytes); });
    }
}

TEST_CASE("windows: a hostile rank that answers falsely is cut off") {
  const auto bytes_of = [](const rma::place_record& record) {
    const auto all = std::as_bytes(std::span(&record, 1));
    return std::vector<std::byte>(all.begin(), all.end());
  };
  const std::vector<std::byte> answers[] = {
      {},
      std::vector<std::byte>(4),
      bytes_of({.bytes = ~std::uint64_t{0}, .signals = 1}),
      bytes_of({.bytes = 4, .signals = ~std::uint64_t{0}}),
  };
  for (const std::string& transport : transports)
    for (const std::vector<std::byte>& answer : answers) {
      CAPTURE(transport);
      CAPTURE(answer.size());
      run_local(2, over(transport),
                [&answer](communicator world) { return answer_falsely(std::move(world), answer); });
    }
}
