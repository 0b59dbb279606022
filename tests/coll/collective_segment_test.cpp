// SPDX-License-Identifier: Apache-2.0
// Collectives between ranks that read each other's memory: several at once, with ranks that sleep or leave,
// and with memory that is freed.
#include "base/shared_memory.hpp"
#include "coll/conformance/worlds.hpp"
#include "comm/communicator_state.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <thread>
#include <tutti/extend/poller.hpp>
#include <tutti/shared_memory.hpp>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr auto here = algorithm::shared_memory;

// One of each kind, all in flight at once, repeatedly. They use the segment one after the other.
task<> all_at_once(communicator world, std::size_t n) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const int rank = world.rank();
  const int total = world.size() * (world.size() - 1) / 2;
  for (int round = 0; round < 20; ++round) {
    std::vector<int> bcast(n, rank == 1 ? round : -1), sums(n, rank), reduced(n, -1), mine(n, rank + round),
        gathered(n * ranks, -1);
    std::vector<int> slices(n * ranks, rank), slice(n, -1), to(n * ranks), from(n * ranks, -1);
    for (std::size_t r = 0; r < ranks; ++r)
      std::fill_n(to.begin() + static_cast<std::ptrdiff_t>(r * n), n, rank * 100 + static_cast<int>(r));
    std::deque<request> running;
    running.push_back(start(world.broadcast(bcast, 1).with(here)));
    running.push_back(start(world.all_reduce(sums, sum).with(here)));
    running.push_back(start(world.reduce(mine, reduced, max, 0).with(here)));
    running.push_back(start(world.barrier().with(here)));
    running.push_back(start(world.all_gather(mine, gathered).with(here)));
    running.push_back(start(world.reduce_scatter(slices, slice, sum).with(here)));
    running.push_back(start(world.all_to_all(to, from).with(here)));
    while (!running.empty()) {
      co_await running.front();
      running.pop_front();
    }
    for (const int x : bcast) TUTTI_EXPECT(x == round);
    for (const int x : sums) TUTTI_EXPECT(x == total);
    if (rank == 0)
      for (const int x : reduced) TUTTI_EXPECT(x == world.size() - 1 + round);
    for (std::size_t i = 0; i < gathered.size(); ++i)
      TUTTI_EXPECT(gathered[i] == static_cast<int>(i / n) + round);
    for (const int x : slice) TUTTI_EXPECT(x == total);
    for (std::size_t i = 0; i < from.size(); ++i)
      TUTTI_EXPECT(from[i] == static_cast<int>(i / n) * 100 + rank);
  }
}

// Long data in shared memory, on all ranks or on all but one.
task<> in_shared_memory(communicator world, int odd_one) {
  constexpr std::size_t n = 100'003;
  const auto ranks = static_cast<std::size_t>(world.size());
  const int rank = world.rank();
  const int total = world.size() * (world.size() - 1) / 2;
  const bool odd = rank == odd_one;
  for (int round = 0; round < 4; ++round) {
    std::vector<int> ordinary_in(odd ? n * ranks : 0), ordinary_out(odd ? n * ranks : 0);
    shared_vector<int> shared_in(odd ? 0 : n * ranks), shared_out(odd ? 0 : n * ranks);
    const std::span<int> in = odd ? std::span<int>(ordinary_in) : std::span<int>(shared_in);
    const std::span<int> out = odd ? std::span<int>(ordinary_out) : std::span<int>(shared_out);
    const auto fill = [&] {
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = rank + static_cast<int>(i) + round;
    };
    fill();
    co_await world.all_reduce(in, out, sum).with(here);
    for (std::size_t i = 0; i < in.size(); ++i)
      TUTTI_EXPECT(out[i] == total + world.size() * (static_cast<int>(i) + round));
    co_await world.all_reduce(in, sum).with(here);
    for (std::size_t i = 0; i < in.size(); ++i) TUTTI_EXPECT(in[i] == out[i]);
    fill();
    co_await world.reduce_scatter(in, out.first(n), sum).with(here);
    for (std::size_t i = 0; i < n; ++i)
      TUTTI_EXPECT(out[i] ==
                   total + world.size() * (static_cast<int>(i + n * static_cast<std::size_t>(rank)) + round));
    co_await world.all_gather(in.first(n), out).with(here);
    for (std::size_t i = 0; i < out.size(); ++i)
      TUTTI_EXPECT(out[i] == static_cast<int>(i / n) + static_cast<int>(i % n) + round);
    co_await world.all_to_all(in, out).with(here);
    for (std::size_t i = 0; i < out.size(); ++i)
      TUTTI_EXPECT(out[i] == static_cast<int>(i / n) +
                                 static_cast<int>(i % n + n * static_cast<std::size_t>(rank)) + round);
    co_await world.broadcast(in, round % world.size()).with(here);
    for (std::size_t i = 0; i < in.size(); ++i)
      TUTTI_EXPECT(in[i] == round % world.size() + static_cast<int>(i) + round);
    fill();
    co_await world.reduce(in, out, sum, 0).with(here);
    if (rank == 0)
      for (std::size_t i = 0; i < in.size(); ++i)
        TUTTI_EXPECT(out[i] == total + world.size() * (static_cast<int>(i) + round));
  }
}

task<> pause(communicator world, std::chrono::milliseconds time) {
  boost::asio::steady_timer timer(world.get_executor(), time);
  co_await timer.async_wait(boost::asio::deferred);
}

// All waiting ranks sleep when the last one arrives.
task<> one_comes_late(communicator world) {
  for (int round = 0; round < 12; ++round) {
    if (world.rank() == round % world.size()) co_await pause(world, std::chrono::milliseconds(3));
    std::vector<int> x(round % 2 == 0 ? 3 : 400'000, 1);
    co_await world.all_reduce(x, sum).with(here);
    TUTTI_EXPECT(x.front() == world.size());
    TUTTI_EXPECT(x.back() == world.size());
    co_await world.broadcast(x, round % world.size()).with(here);
  }
}

// Roots may run ahead as far as the segment has space, and then wait.
task<> one_is_ahead(communicator world) {
  for (int round = 0; round < 200; ++round) {
    std::vector<int> x(static_cast<std::size_t>(1 + round * 37 % 5000), world.rank() == 0 ? round : -1);
    co_await world.broadcast(x, 0).with(here);
    TUTTI_EXPECT(x.back() == round);
  }
  for (int round = 0; round < 200; ++round) {
    std::vector<int> x(static_cast<std::size_t>(1 + round * 37 % 5000), round), y(x.size());
    co_await world.reduce(x, y, sum, 0).with(here);
    if (world.rank() == 0) TUTTI_EXPECT(y.back() == round * world.size());
  }
}

// Data that a rank has published stay available after it has left.
task<> gives_and_leaves(communicator world) {
  std::vector<int> x(100'000, world.rank());
  co_await world.all_reduce(x, max).with(here);
  if (world.rank() != 0) co_await pause(world, std::chrono::milliseconds(30));
  std::vector<int> y(5, world.rank() == 0 ? 42 : 0);
  co_await world.broadcast(y, 0).with(here);
  for (const int v : y) TUTTI_EXPECT(v == 42);
}

// The others read after the communicator has failed, and rank 0 has closed it and taken new memory.
task<> gives_and_fails(communicator world) {
  communicator c = co_await world.duplicate();
  std::vector<int> x(100'000, world.rank()), y(1000, world.rank() == 0 ? 42 : 0);
  co_await c.all_reduce(x, max).with(here);
  std::deque<shared_vector<int>> taken;
  if (world.rank() == 0) {
    co_await c.broadcast(y, 0).with(here);
    c.abort();
    c = communicator();
    for (int i = 0; i < 3; ++i) taken.emplace_back(std::size_t{1} << 20, -1);
  }
  co_await world.barrier();
  if (world.rank() != 0) co_await c.broadcast(y, 0).with(here);
  TUTTI_EXPECT(std::ranges::count(y, 42) == std::ssize(y));
  co_await world.barrier();
}

task<> many_communicators(communicator world, bool fails, std::size_t most_bytes) {
  for (int i = 0; i < 150; ++i) {
    communicator c = co_await world.duplicate();
    std::vector<int> x(30'000, 1);
    co_await c.all_reduce(x, sum).with(here);
    TUTTI_EXPECT(x.front() == world.size());
    if (!fails) continue;
    if (world.rank() == i % world.size()) c.abort();
    const failure f = co_await failure_in(c.barrier());
    TUTTI_EXPECT(f.code != errc::success);
  }
  co_await world.barrier();
  TUTTI_EXPECT(base::shared_memory_in_use().allocated_bytes <= most_bytes);
}

task<> different_calls(communicator world) {
  std::vector<int> before(1, 1);
  co_await world.all_reduce(before, sum).with(here);
  std::vector<int> x(world.rank() == 1 ? 50'000 : 60'000, 1);
  co_await world.all_reduce(x, sum).with(here);
}

// ---- rank 0 publishes between the last poll of rank 2 and its last check before it sleeps ----

struct moments {
  std::atomic<bool> polled{false};   // by rank 2, for the last time
  std::atomic<bool> arrived{false};  // rank 0
  std::atomic<bool> ended{false};    // the call of rank 2
};
void reach(std::atomic<bool>& moment) {
  moment = true;
  moment.notify_all();
}

// Polled after the segment. If nothing waits, a loop arms after the first poll that finds nothing. The poll
// during which begin() was called does not count.
class last_poll final : public extend::poller {
 public:
  last_poll(const communicator& c, core::loop& loop, moments& m) : poller(c), loop_(loop), moments_(m) {}
  void begin() noexcept { loop_.engine().end_wait(); }
  // Since the arrival of rank 0.
  std::uint64_t sleeps() const noexcept { return loop_.counters().parks - parks_before_; }

 private:
  bool poll() noexcept override {
    if (moments_.arrived || loop_.engine().waiting() || polls_++ == 0) return false;
    parks_before_ = loop_.counters().parks;
    reach(moments_.polled);
    moments_.arrived.wait(false);
    return false;
  }
  bool arm() noexcept override {
    if (moments_.arrived && !std::exchange(restored_, true)) loop_.engine().begin_wait();
    return false;
  }
  void disarm() noexcept override {}
  void timer_fired() noexcept override {}
  void deliver() noexcept override {}

  core::loop& loop_;
  moments& moments_;
  int polls_ = 0;
  std::uint64_t parks_before_ = 0;
  bool restored_ = false;
};

task<> arrives_before_sleep(communicator world, moments* m, bool reduces) {
  constexpr std::size_t n = 20'000;  // takes several rounds
  std::vector<int> x(world.rank() == 0 ? n + 1 : n, 1), all(3 * x.size());
  int one = 1;
  co_await world.all_reduce(one, sum).with(here);
  co_await world.barrier().with(here);
  const operation<> any = world.barrier();
  comm::communicator_state& state = *any.what().comm;
  const auto call = [&] {
    return reduces ? world.all_reduce(x, sum).with(here) : world.all_gather(x, all).with(here);
  };
  if (world.rank() == 2) {
    last_poll between(world, state.loop(), *m);
    request calling = start(call());
    between.begin();
    const failure f = co_await failure_awaiting(&calling);
    const std::uint64_t sleeps = between.sleeps();
    reach(m->ended);
    TUTTI_EXPECT(f.code == errc::mismatch);
    TUTTI_EXPECT(sleeps == 0);
  } else if (world.rank() == 0) {
    m->polled.wait(false);
    request calling = start(call());
    reach(m->arrived);
    const failure f = co_await failure_awaiting(&calling);
    TUTTI_EXPECT(f.code == errc::mismatch);
  } else {
    m->ended.wait(false);
  }
}

// Rank 0 always has room, and so never waits. `received` counts what rank 1 has received.
task<> root_without_waits(communicator world, std::atomic<int>* received) {
  constexpr int most = 100'000;
  int last = 0;
  for (int i = 0; i < 8; ++i) co_await world.all_reduce(last, sum);
  if (world.rank() == 1) {
    while (last == 0) {
      co_await world.broadcast(last, 0).with(here);
      ++*received;
    }
    co_return;
  }
  bool turn_came = false;
  boost::asio::post(world.get_executor(), [&turn_came] { turn_came = true; });
  for (int i = 0; i < most && !turn_came; ++i) {
    co_await world.broadcast(last, 0).with(here);
    while (*received <= i) std::this_thread::yield();
  }
  TUTTI_EXPECT(turn_came);
  last = 1;
  co_await world.broadcast(last, 0).with(here);
}

// Short operations in two levels, one after the other. Now and then a rank is late, so that others wait in their first
// step or in their second.
task<> steps_in_turn(communicator world) {
  random_numbers numbers(static_cast<std::uint64_t>(world.rank()));
  const int total = world.size() * (world.size() - 1) / 2;
  for (int i = 0; i < 300; ++i) {
    if (numbers.one_in(8)) co_await sleep_for(std::chrono::microseconds(numbers.below(200)));
    std::vector<int> sums(i % 5 == 0 ? 300 : 1, world.rank() + i), given(i % 7 == 0 ? 500 : 2, -1);
    const int root = i % world.size();
    if (world.rank() == root) std::fill(given.begin(), given.end(), i);
    co_await world.all_reduce(sums, sum);
    co_await world.broadcast(given, root);
    for (const int x : sums) TUTTI_EXPECT(x == total + i * world.size());
    for (const int x : given) TUTTI_EXPECT(x == i);
    if (i % 3 == 0) co_await world.barrier();
  }
}

struct sum_that_throws {
  bool throws;
  int operator()(int a, int b) const {
    if (throws) throw std::runtime_error("no sum today");
    return a + b;
  }
};

task<> one_throws(communicator world) {
  for (int i = 0; i < 20; ++i) {
    int x = 1;
    co_await world.all_reduce(x, sum_that_throws{i == 12 && world.rank() == 3});
    TUTTI_EXPECT(x == world.size());
  }
}

}  // namespace

TEST_CASE("collective segment: other work gets its turn beside operations that never wait") {
  std::atomic<int> received = 0;
  CHECK_NOTHROW(run_local(2, over("shm"), [&received](communicator world) {
    return root_without_waits(std::move(world), &received);
  }));
}

TEST_CASE("collective segment: all kinds at once") {
  for (const int ranks : {2, 3, 5})
    for (const std::size_t n : {std::size_t{1}, std::size_t{700}, std::size_t{30'011}}) {
      CAPTURE(ranks);
      CAPTURE(n);
      CHECK_NOTHROW(run_local(ranks, over("shm"),
                              [n](communicator world) { return all_at_once(std::move(world), n); }));
    }
}

TEST_CASE("collective segment: data in shared memory are read in place") {
  for (const int ranks : {2, 3, 4})
    for (const int odd_one : {-1, 0, 1}) {
      CAPTURE(ranks);
      CAPTURE(odd_one);
      CHECK_NOTHROW(run_local(ranks, over("shm"), [odd_one](communicator world) {
        return in_shared_memory(std::move(world), odd_one);
      }));
    }
}

TEST_CASE("collective segment: a rank that sleeps is notified") {
  for (const int ranks : {2, 4}) CHECK_NOTHROW(run_local(ranks, over("shm"), one_comes_late));
}

TEST_CASE("collective segment: roots ahead of the others") {
  CHECK_NOTHROW(run_local(3, over("shm"), one_is_ahead));
}

TEST_CASE("collective segment: published data stay after the publishing rank has left") {
  CHECK_NOTHROW(run_local(3, over("shm"), gives_and_leaves));
}

TEST_CASE("collective segment: published data stay after the publishing rank has failed and closed it") {
  CHECK_NOTHROW(run_local(3, over("shm"), gives_and_fails));
}

TEST_CASE("collective segment: it is destroyed with its communicator, also one that has failed") {
  constexpr int ranks = 3;
  constexpr std::size_t part = 4 * 1024 * 1024 + 64 * 1024;
  // Slower ranks may still use the segments of the last communicators.
  const std::size_t most = base::shared_memory_in_use().allocated_bytes + ranks * part * 6;
  for (const bool fails : {false, true}) {
    CAPTURE(fails);
    CHECK_NOTHROW(run_local(ranks, over("shm"), [=](communicator world) {
      return many_communicators(std::move(world), fails, most);
    }));
  }
}

TEST_CASE("collective segment: a differing call just before the loop sleeps is refused without a sleep") {
  for (const bool reduces : {true, false}) {
    CAPTURE(reduces);
    moments m;
    CHECK_NOTHROW(run_local(3, over("shm"), [&m, reduces](communicator world) {
      return arrives_before_sleep(std::move(world), &m, reduces);
    }));
  }
}

TEST_CASE("collective segment: ranks in different collectives get an error") {
  for (const failure& f : failures_of(3, over("shm"), different_calls)) {
    CAPTURE(f.text);
    CHECK((f.code == errc::mismatch || f.code == errc::communicator_failed));
    CHECK(f.says("50000 elements"));
    CHECK(f.says("60000 elements"));
  }
}

TEST_CASE("collective segment: in two levels, short operations take their steps in turn") {
  const scoped_variable flat("TUTTI_FLAT_RANKS", "3");
  CHECK_NOTHROW(run_local(4, over("shm"), steps_in_turn));
  CHECK_NOTHROW(run_local(7, over("shm"), steps_in_turn));  // a group of four: one of them only takes
}

TEST_CASE("collective segment: in two levels, a reduction that throws fails the collective on all ranks") {
  const scoped_variable flat("TUTTI_FLAT_RANKS", "3");
  const std::vector<failure> seen = failures_of(5, over("shm"), one_throws);
  for (std::size_t r = 0; r < seen.size(); ++r) {
    CAPTURE(r);
    CHECK(seen[r].says("no sum today"));
  }
}
