// SPDX-License-Identifier: Apache-2.0
// Several collectives of every kind are in flight, and some ranks cancel some of them. Their buffers are
// freed and poisoned at once, and the parent communicator keeps working. TUTTI_TEST_STORM: number of
// operations; TUTTI_TEST_SEED replays a run. Nor does a rank that reads such a buffer in place succeed with it.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <thread>
#include <tutti/shared_memory.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;
namespace asio = boost::asio;

namespace {

constexpr int ranks = 4;
constexpr int kinds = 13;
constexpr int at_once = 3;

std::size_t wanted_operations() {
  const char* const given = std::getenv("TUTTI_TEST_STORM");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 1500;
}

// A collective with its own buffers.
struct flight {
  std::unique_ptr<std::uint32_t[]> in;
  std::unique_ptr<std::uint32_t[]> out;
  std::size_t elements = 0;
  request pending;

  flight(const communicator& c, int kind, std::size_t n) : elements(n * ranks) {
    in = std::make_unique<std::uint32_t[]>(elements);
    out = std::make_unique<std::uint32_t[]>(elements);
    std::fill_n(in.get(), elements, 1U);
    const std::span<const std::uint32_t> all_in(in.get(), elements), some_in(in.get(), n);
    const std::span<std::uint32_t> all_out(out.get(), elements), some_out(out.get(), n);
    switch (kind) {
      case 0:
        pending = start(c.barrier());
        break;
      case 1:
        pending = start(c.broadcast(all_out, 1));
        break;
      case 2:
        pending = start(c.reduce(all_in, all_out, sum, 2));
        break;
      case 3:
        pending = start(c.all_reduce(all_in, all_out, sum));
        break;
      case 4:
        pending = start(c.scatter(all_in, some_out, 0));
        break;
      case 5:
        pending = start(c.gather(some_in, all_out, 3));
        break;
      case 6:
        pending = start(c.all_gather(some_in, all_out));
        break;
      case 7:
        pending = start(c.reduce_scatter(all_in, some_out, sum));
        break;
      case 8:
        pending = start(c.all_to_all(all_in, all_out));
        break;
      case 9:
        pending = start(c.scan(all_in, all_out, sum));
        break;
      case 10:
        pending = start(c.exclusive_scan(all_in, all_out, sum));
        break;
      case 11:
        pending = start(c.all_reduce(all_out, max));
        break;
      default:
        pending = start(c.all_reduce(all_in, all_out, sum).with(algorithm::ring));
        break;
    }
  }
  // After return nothing may access the memory.
  void drop() {
    pending = request();
    std::fill_n(in.get(), elements, 0xdeadbeefU);
    std::fill_n(out.get(), elements, 0xdeadbeefU);
    in.reset();
    out.reset();
  }
};

task<> turns(communicator world, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) co_await asio::post(world.get_executor(), asio::deferred);
}
task<> sleep_a_little(communicator world, std::chrono::microseconds time) {
  asio::steady_timer timer(world.get_executor(), time);
  co_await timer.async_wait(asio::deferred);
}

// The errors that a collective may have when some rank cancels it.
bool may_be(const failure& f) {
  return f.code == errc::success || f.code == errc::timed_out || f.code == errc::cancelled ||
         f.code == errc::communicator_failed;
}

task<> storm(communicator world, std::uint64_t seed, std::size_t operations) {
  random_numbers same(seed);  // on all ranks
  random_numbers own(seed * 31 + static_cast<std::uint64_t>(world.rank()));
  for (std::size_t done = 0; done < operations; done += at_once * ranks) {
    communicator c = co_await world.duplicate();
    std::deque<flight> flights;
    const int culprit = static_cast<int>(same.below(ranks));
    for (int i = 0; i < at_once; ++i) {
      const int kind = static_cast<int>(same.below(kinds));
      const std::size_t n = same.one_in(4) ? 1 + same.below(100000) : 1 + same.below(300);
      flights.emplace_back(c, kind, n);
      if (own.one_in(3)) co_await turns(world, own.below(3));
    }
    const std::size_t way = same.below(5);
    if (world.rank() == culprit) {
      if (own.one_in(2)) co_await turns(world, own.below(20));
      if (own.one_in(3)) co_await sleep_a_little(world, std::chrono::microseconds(own.below(300)));
      flight& victim = flights[own.below(at_once)];
      switch (way) {
        case 0:
          victim.drop();
          break;
        case 1:
          victim.pending.cancel();
          break;
        case 2:
          c.abort();
          break;
        case 3: {
          const failure f =
              co_await failure_in(with_timeout(victim.pending, std::chrono::microseconds(own.below(200))));
          TUTTI_EXPECT(may_be(f));
          break;
        }
        default: {
          std::exception_ptr failed;
          try {
            co_await when_any(victim.pending, turns(world, own.below(10)));
          } catch (const error&) {
            failed = std::current_exception();
          }
        }
      }
    }
    // Each ends in any order, with success or the reason of the cancelling rank, and releases its memory.
    for (flight& f : flights) {
      if (!f.in) continue;
      if (own.one_in(2) && f.pending) {
        const failure end = co_await failure_awaiting(&f.pending);
        if (!may_be(end)) throw std::runtime_error("a collective ended otherwise: " + end.text);
      }
      f.drop();
    }
    c = communicator();
    int x = world.rank();
    co_await world.all_reduce(x, sum);
    TUTTI_EXPECT(x == 6);
  }
}

// ---- buffers that another rank reads in place ----

// Of two ranks, threads of one process.
struct signals {
  std::size_t calls = 0;              // of rank 1's reduction
  std::atomic<bool> late = false;     // rank 1 reduces the last elements
  std::atomic<bool> changed = false;  // rank 0 has dropped the collective, and changed its buffers
};

constexpr std::size_t elements = 500'000;
constexpr std::uint64_t good = 7, not_yet = 1, changed = 9;

struct larger {
  signals* rank_1;  // null on rank 0
  std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const {
    if (rank_1 != nullptr && ++rank_1->calls == elements - 1000) {
      rank_1->late = true;
      const auto until = std::chrono::steady_clock::now() + patience;
      while (!rank_1->changed && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    }
    return std::max(a, b);
  }
};

// Rank 0 drops the collective when it has its result, while rank 1 reads its memory, and writes there.
task<> change_what_is_read(communicator world, signals* s) {
  communicator c = co_await world.duplicate();
  shared_vector<std::uint64_t> in(2 * elements, good), out(elements, not_yet);
  request pending = start(c.reduce_scatter(in, out, larger{world.rank() == 1 ? s : nullptr}));
  if (world.rank() == 0) {
    while (!pending.done() && (!s->late || out.back() == not_yet)) co_await turns(world, 1);
    TUTTI_EXPECT(!pending.done());
    pending = request();
    std::ranges::fill(in, changed);
    std::ranges::fill(out, changed);
    s->changed = true;
  } else {
    const failure f = co_await failure_awaiting(&pending);
    TUTTI_EXPECT(s->changed);
    TUTTI_EXPECT((f.code == errc::cancelled || f.code == errc::communicator_failed));
  }
  c = communicator();
  co_await world.barrier();
}

}  // namespace

TEST_CASE("a collective does not succeed with what a rank wrote into its buffers after dropping it") {
  for (int round = 0; round < 5; ++round) {
    signals s;
    CHECK_NOTHROW(run_local(2, over("shm"),
                            [&s](communicator world) { return change_what_is_read(std::move(world), &s); }));
  }
}

TEST_CASE("cancelled collectives release their buffers at once, and the parent keeps working") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(ranks, over(transport), [seed](communicator world) -> task<> {
      return storm(std::move(world), seed, wanted_operations());
    }));
  }
}
