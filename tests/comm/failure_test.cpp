// SPDX-License-Identifier: Apache-2.0
// Failures: timeouts, peers that leave or fail, cancelled collectives. Every rank gets the cause, and none
// hangs.
#include "support/default_timeout.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

constexpr auto soon = 300ms;  // for operations that must time out

task<> recv_nobody_sends(communicator world) {
  set_default_timeout(world, soon);
  int x = 0;
  const auto before = std::chrono::steady_clock::now();
  failure f = co_await failure_in(world.recv(x, 1, 42));
  TUTTI_EXPECT(std::chrono::steady_clock::now() - before >= soon);
  TUTTI_EXPECT(f.code == errc::timed_out);
  TUTTI_EXPECT(f.says("recv of 4 bytes from rank 1"));
  TUTTI_EXPECT(f.says("tag 42"));
  TUTTI_EXPECT(f.says("world"));
  TUTTI_EXPECT(f.says("0.3 s"));
  f = co_await failure_in(world.recv(x, any_source));
  TUTTI_EXPECT(f.code == errc::timed_out);
  TUTTI_EXPECT(f.says("from any rank"));
  const std::vector<char> large(1 << 20);
  f = co_await failure_in(world.send(large, 0, 3));  // to itself, without a receive
  TUTTI_EXPECT(f.code == errc::timed_out);
  TUTTI_EXPECT(f.says("send of 1048576 bytes to rank 0"));
  // The communicator still works.
  set_default_timeout(world, patience);
  request sending = world.isend(large, 0, 4);
  std::vector<char> in(large.size());
  co_await world.recv(in, 0, 4);
  co_await sending;
  co_await world.send(x, 1);
}

// Stays alive while rank 0 waits in vain.
task<> stays_until_told(communicator world) {
  int x = 0;
  co_await world.recv(x, 0);
}

task<> a_barrier_that_one_rank_misses(communicator world) {
  set_default_timeout(world, soon);
  int x = 0;
  failure f;
  if (world.rank() == 0) {
    do {  // until the communicator has failed
      f = co_await failure_in(world.recv(x, 1, 5));
    } while (f.code == errc::timed_out && !f.says("barrier"));
  } else {
    f = co_await failure_in(world.barrier());
  }
  if (!f.says("barrier #1") || f.code == errc::success)
    throw std::runtime_error("not that reason: " + f.text);
  const failure next = co_await failure_in(world.barrier());
  TUTTI_EXPECT(next.code == errc::communicator_failed);
}

// The timeout starts with the operation, not with earlier computation of the rank.
task<> computes_longer_than_the_timeout(communicator world) {
  int x = 0;
  co_await world.barrier();
  if (world.rank() == 0) {
    set_default_timeout(world, soon);
    const auto until = std::chrono::steady_clock::now() + 3 * soon;
    while (std::chrono::steady_clock::now() < until) {
    }
    const auto before = std::chrono::steady_clock::now();
    const failure f = co_await failure_in(world.recv(x, 1));
    TUTTI_EXPECT(f.code == errc::timed_out);
    TUTTI_EXPECT(std::chrono::steady_clock::now() - before >= soon);
    set_default_timeout(world, patience);
    co_await world.send(x, 1);
  } else {
    co_await world.recv(x, 0);
  }
}

task<> leaves_while_waited_for(communicator world) {
  co_await world.barrier();
  if (world.rank() == 1) co_return;
  int x = 0;
  const failure f = co_await failure_in(world.recv(x, 1, 1));
  TUTTI_EXPECT(f.code == errc::peer_left);
  TUTTI_EXPECT(f.says("rank 1"));
  TUTTI_EXPECT(f.says("recv"));
}

task<> leaves_unmet(communicator world) {
  if (world.rank() == 1) co_return;
  if (world.rank() == 2) {
    co_await world.send(7, 0);
    co_return;
  }
  int x = 0;
  const failure f = co_await failure_in(world.recv(x, 1));
  TUTTI_EXPECT(f.code == errc::peer_left);
  co_await world.recv(x, any_source);
  TUTTI_EXPECT(x == 7);
}

task<> all_leave(communicator world) {
  co_await world.barrier();
  if (world.rank() != 0) co_return;
  int x = 0;
  const failure f = co_await failure_in(world.recv(x, any_source));
  TUTTI_EXPECT(f.code == errc::peer_left);
}

task<> what_was_sent_before_leaving_arrives(communicator world) {
  std::vector<int> data(300'000, 7);
  if (world.rank() == 1) {
    for (int i = 0; i < 100; ++i) co_await world.send(i, 0, 1);
    co_await world.send(data, 0, 2);
    co_return;
  }
  std::vector<int> in(data.size());
  co_await world.recv(in, 1, 2);
  TUTTI_EXPECT(in == data);
  for (int i = 0; i < 100; ++i) {
    int x = -1;
    co_await world.recv(x, 1, 1);
    TUTTI_EXPECT(x == i);
  }
}

task<> leaves_before_a_collective(communicator world) {
  std::vector<float> data(10, 1);
  co_await world.all_reduce(data, sum);
  if (world.rank() == 1) co_return;
  co_await world.all_reduce(data, sum);
}

task<> one_rank_throws(communicator world, int thrower) {
  std::vector<float> data(100, 1);
  co_await world.all_reduce(data, sum);
  if (world.rank() == thrower) throw std::runtime_error("boom");
  int x = 0;
  if (world.rank() == (thrower + 1) % world.size()) co_await world.recv(x, thrower);
  co_await world.all_reduce(data, sum);
}

// Rank 1's error comes first, and reads as if another rank had caused it.
task<> the_cause_comes_last(communicator world) {
  if (world.rank() == 1) throw error(errc::cancelled, "dropped by the other rank");
  int x = 0;
  const failure f = co_await failure_in(world.recv(x, 1));
  TUTTI_EXPECT(f.code == errc::peer_failed);
  throw std::runtime_error("boom");
}

// A rank that throws out of main fails all its communicators, whatever its number there. That includes
// communicators whose last handle main destroys.
task<> knows_who_threw(communicator world, bool in_child) {
  const int thrower = world.size() - 1;
  communicator reversed = co_await world.split(0, -world.rank());
  communicator inner = co_await reversed.duplicate();
  co_await inner.barrier();
  if (world.rank() == thrower) throw std::runtime_error("boom");
  failure f;
  if (in_child) {
    f = co_await failure_in(inner.barrier());
  } else {
    f = co_await failure_in(world.barrier());
  }
  if (f.code != errc::peer_failed || !f.says("boom")) throw std::runtime_error("not that reason: " + f.text);
  if (in_child) TUTTI_EXPECT(inner.failed_ranks() == std::vector<int>{0});
  TUTTI_EXPECT(world.failed_ranks() == std::vector<int>{thrower});
}

// Rank 2 has no connection to rank 1. Rank 0 tells it of the failure.
task<> knows_whom_others_lost(communicator world) {
  if (world.rank() == 1) throw std::runtime_error("boom");
  int x = 0;
  if (world.rank() == 0) {
    const failure f = co_await failure_in(world.recv(x, 1));
    TUTTI_EXPECT(f.code == errc::peer_failed);
    throw std::runtime_error("lost: " + f.text);
  }
  const failure f = co_await failure_in(world.recv(x, 0));
  if (f.code != errc::peer_failed) throw std::runtime_error("not that reason: " + f.text);
  // Rank 1, which fails on all, may be faster than rank 0. Rank 0's end may overtake its message.
  std::vector<int> named = {0};
  if (f.says("boom")) named = f.says("lost:") ? std::vector<int>{0, 1} : std::vector<int>{1};
  if (!std::ranges::includes(world.failed_ranks(), named)) throw std::runtime_error("unknown: " + f.text);
}

// Rank 0 completes a barrier and then fails the communicator. Rank 1 has entered the barrier and polls later.
task<> completes_what_all_have_reached(communicator world, int calls_before, std::atomic<int>* failures) {
  for (int round = 0; round < 10; ++round) {
    communicator c = co_await world.duplicate();
    for (int i = 0; i < calls_before; ++i) co_await c.barrier();
    co_await sleep_for(0s);  // the first two frames of a round of the loop leave at once, over TCP, too
    request reached = start(c.barrier());
    if (world.rank() == 0) {
      co_await reached;
      c.abort();
      *failures = round + 1;
    } else {
      while (*failures <= round) std::this_thread::yield();
      const failure f = co_await failure_awaiting(&reached);
      TUTTI_EXPECT(f.text == "");
    }
    const failure next = co_await failure_in(c.barrier());
    TUTTI_EXPECT(next.says("was aborted by rank 0"));
    co_await world.barrier();
  }
}

// Lets the loop turn until another rank, a thread, has set it. At least once: what was sent before has then left, and
// does not hold up what is sent next (over TCP a third frame of a turn leaves in the next one).
task<> reaches(communicator world, std::atomic<int>* step, int value) {
  boost::asio::steady_timer later(world.get_executor());
  do {
    later.expires_after(1ms);
    co_await later.async_wait(boost::asio::deferred);
  } while (*step < value);
}

// Rank 0 drops a collective when it has given all that rank 1 needs, which polls later. Or both have called it, and
// rank 0 aborts the communicator from which that of the collective was made.
task<> completes_from_what_has_come(communicator world, int calls_before, bool parent,
                                    std::atomic<int>* step) {
  for (int round = 0; round < 10; ++round) {
    communicator outer = co_await world.duplicate(), c = co_await outer.duplicate();
    for (int i = 0; i < calls_before; ++i) co_await c.barrier();
    const int polls_not = 2 * round + 1, failed = 2 * round + 2;
    request reached;
    char called = 1;
    if (world.rank() == 0) {
      if (parent) co_await world.recv(called, 1);
      co_await reaches(world, step, polls_not);
      reached = start(c.barrier());
      if (parent) co_await reached;
      reached = request();
      if (parent) outer.abort();
      *step = failed;
    } else {
      if (parent) {
        reached = start(c.barrier());
        co_await world.send(called, 0);  // what the barrier sends has left before
      }
      *step = polls_not;
      while (*step < failed) std::this_thread::yield();
      if (!parent) reached = start(c.barrier());
      const failure f = co_await failure_awaiting(&reached);
      TUTTI_EXPECT(f.text == "");
    }
    const failure next = co_await failure_in(c.barrier());
    TUTTI_EXPECT(next.says("rank 0"));
    co_await world.barrier();
  }
}

// Rank 2 gives up a duplicate() that rank 0 has completed, when it still waits for rank 1.
task<> gives_up_what_another_has_made(communicator world, bool timed_out, std::atomic<int>* step) {
  enum { begun = 1, made_by_one, given_up };
  co_await world.barrier();
  int x = 0;
  if (world.rank() == 0) {
    communicator made = co_await world.duplicate();
    std::vector<char> large(4 << 20);
    request sending = made.isend(large, 2), receiving = made.irecv(x, 2);
    *step = made_by_one;
    for (request* waiting : {&sending, &receiving}) {
      const failure f = co_await failure_awaiting(waiting);
      TUTTI_EXPECT(f.code == (timed_out ? errc::timed_out : errc::cancelled));
      TUTTI_EXPECT(f.says(made.name() + " was not made on all ranks: duplicate #"));
      TUTTI_EXPECT(f.says(" on rank 2 (host "));
    }
  } else if (world.rank() == 1) {
    auto making = start(world.duplicate());
    *step = begun;
    const auto until = std::chrono::steady_clock::now() + patience;
    while (*step < given_up && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    const failure f = co_await failure_awaiting(&making);
    TUTTI_EXPECT(f.says(" on rank 2 (host "));
  } else {
    co_await reaches(world, step, begun);
    auto making = start(world.duplicate());
    co_await reaches(world, step, made_by_one);
    if (timed_out) {
      const failure f = co_await failure_in(with_timeout(making, 10ms));
      TUTTI_EXPECT(f.code == errc::timed_out);
    }
    making = {};
    *step = given_up;
  }
}

// Rank 0 completes its part of a broadcast, which reaches rank 3 through rank 2, and fails the communicator.
// Rank 2 begins its part when rank 3, which waits in it, knows of the failure.
task<> completes_what_the_failed_has_completed(communicator world) {
  communicator c = co_await world.duplicate();
  co_await c.barrier();
  int x = world.rank() == 0 ? 7 : 0, never = 0, go = 0;
  if (world.rank() == 0) {
    co_await c.broadcast(x, 0).with(algorithm::binomial);
    c.abort();
  } else if (world.rank() == 3) {
    request receiving = start(c.broadcast(x, 0).with(algorithm::binomial));
    const failure heard = co_await failure_in(c.recv(never, 0));
    TUTTI_EXPECT(heard.code == errc::cancelled);
    TUTTI_EXPECT(!receiving.done());
    co_await world.send(go, 2);
    co_await receiving;
  } else {
    if (world.rank() == 2) co_await world.recv(go, 3);
    co_await c.broadcast(x, 0).with(algorithm::binomial);
  }
  TUTTI_EXPECT(x == 7);
  const failure next = co_await failure_in(c.barrier());
  TUTTI_EXPECT(next.says("was aborted by rank 0"));
}

task<> is_named_by_both_numbers(communicator world) {
  const std::vector<int> turned = {2, 0};
  communicator pair = co_await world.group(turned);
  co_await world.barrier();
  int x = 0, go = 0;
  if (world.rank() == 2) {
    co_await world.recv(go, 0);
    throw std::runtime_error("boom");
  }
  if (world.rank() == 1) co_return;
  request receiving = pair.irecv(x, 0), waiting = start(pair.barrier());
  co_await world.send(go, 2);
  const failure message = co_await failure_awaiting(&receiving);
  const failure collective = co_await failure_awaiting(&waiting);
  TUTTI_EXPECT(pair.failed_ranks() == std::vector<int>{0});
  const std::string also = "; rank 2 of the world is rank 0 of " + pair.name();
  TUTTI_EXPECT(message.says("from rank 0 (rank 2 of the world, host "));
  TUTTI_EXPECT(collective.says("barrier #1 on " + pair.name() + ": rank 2 (host "));
  TUTTI_EXPECT(collective.says(also));
}

task<> aborts_while_others_wait(communicator world) {
  communicator c = co_await world.duplicate();
  int x = 0;
  if (world.rank() == 0) {
    for (int r = 1; r < world.size(); ++r) co_await world.recv(x, r);
    c.abort();
  } else {
    request waiting = start(c.barrier());
    co_await world.send(x, 0);
    const failure f = co_await failure_awaiting(&waiting);
    TUTTI_EXPECT(f.code == errc::cancelled);
    TUTTI_EXPECT(f.says("barrier #1 on " + c.name() + ": " + c.name() + " was aborted by rank 0 (host "));
    TUTTI_EXPECT(f.says("its own output may say why"));
  }
  co_await world.barrier();
}

task<> one_rank_throws_at_once(communicator world) {
  if (world.rank() == 1) throw std::runtime_error("boom");
  co_await world.barrier();
}

// Rank 1 leaves this last, so that its later errors cannot end operations of the others.
task<> meet(communicator world) {
  co_await world.barrier();
  int done = 0;
  if (world.rank() != 1) {
    co_await world.send(done, 1, 1000);
  } else {
    for (int r = 0; r + 1 < world.size(); ++r) co_await world.recv(done, any_source, 1000);
  }
}

task<> a_cancelled_collective(communicator world) {
  co_await meet(world);
  if (world.rank() == 1) {
    request reducing = start(world.barrier());
    TUTTI_EXPECT(!reducing.done());
    reducing.cancel();
    const failure f = co_await failure_awaiting(&reducing);
    TUTTI_EXPECT(f.code == errc::cancelled);
    const failure next = co_await failure_in(world.barrier());
    TUTTI_EXPECT(next.code == errc::communicator_failed);
    co_return;
  }
  float x = 0;
  const failure f = co_await failure_in(world.recv(x, 1, 1));  // fails like the communicator
  TUTTI_EXPECT(f.code == errc::cancelled);
  TUTTI_EXPECT(f.says("was cancelled on rank 1"));
}

task<> a_dropped_collective(communicator world) {
  co_await meet(world);
  std::vector<double> data(100'000, 1);
  if (world.rank() == 1) {
    {
      request reducing = start(world.all_reduce(data, sum));
    }
    std::fill(data.begin(), data.end(), 5.0);
    const failure next = co_await failure_in(world.barrier());
    TUTTI_EXPECT(next.code == errc::communicator_failed);
    for (const double x : data) TUTTI_EXPECT(x == 5.0);
    co_return;
  }
  const failure f = co_await failure_in(world.all_reduce(data, sum));
  TUTTI_EXPECT((f.code == errc::cancelled || f.code == errc::communicator_failed));
  TUTTI_EXPECT(f.says("dropped before its end on rank 1"));
}

task<> calls_on_a_failed_communicator(communicator world) {
  std::vector<int> data(4);
  if (world.rank() == 0) {
    co_await failure_in(world.barrier());
  } else {
    co_await failure_in(world.all_reduce(data, sum));
  }
  co_await failure_in(world.barrier());  // by now all ranks know
  std::vector<failure> results;
  results.push_back(co_await failure_in(world.barrier()));
  results.push_back(co_await failure_in(world.send(data, 0)));
  results.push_back(co_await failure_in(world.recv(data, 0)));
  results.push_back(co_await failure_in(world.broadcast(data, 0)));
  results.push_back(co_await failure_in(world.all_reduce(data, sum)));
  for (const failure& f : results) {
    TUTTI_EXPECT(f.code == errc::communicator_failed);
    TUTTI_EXPECT(f.says("failed earlier"));
    TUTTI_EXPECT(f.says("barrier()"));
  }
  request sending = world.isend(data, 0);
  const failure f = co_await failure_awaiting(&sending);
  TUTTI_EXPECT(f.code == errc::communicator_failed);
}

// The first collective to time out completes while the rank asks the others about it. The second must still
// be ended.
task<> two_take_too_long(communicator world) {
  std::vector<int> x(3, world.rank()), y(3, 1);
  if (world.rank() == 2) {
    std::this_thread::sleep_for(80ms);  // a computation on the loop: this rank does not answer
    (void)co_await failure_in(world.broadcast(x, 1).with(algorithm::binomial));
    co_return;
  }
  if (world.rank() == 1) {
    boost::asio::steady_timer later(world.get_executor(), 30ms);
    co_await later.async_wait(boost::asio::deferred);
    (void)co_await failure_in(world.broadcast(x, 1).with(algorithm::binomial));
    co_return;
  }
  request first = start(world.broadcast(x, 1).with(algorithm::binomial));
  request second = start(world.all_reduce(y, sum).with(algorithm::ring));
  auto both =
      co_await when_all(failure_in(with_timeout(first, 10ms)), failure_in(with_timeout(second, 20ms)));
  TUTTI_EXPECT(std::get<1>(both).code != errc::success);
}

// In shared memory or not; few elements and many.
task<> reduces_by_what_throws(communicator world, std::size_t n, bool shared) {
  const auto throwing = [](int a, int b) -> int {
    if (a + b > 0) throw std::runtime_error("an element that nobody can add");
    return 0;
  };
  std::vector<int> ordinary(shared ? 0 : n, 1);
  shared_vector<int> readable(shared ? n : 0, 1);
  const std::span<int> x = shared ? std::span<int>(readable) : std::span<int>(ordinary);
  for (int round = 0; round < 3; ++round) {
    communicator part = co_await world.duplicate();
    failure f = co_await failure_in(part.all_reduce(x, throwing));
    TUTTI_EXPECT(f.code == errc::system);
    TUTTI_EXPECT(f.says("an element that nobody can add"));
    TUTTI_EXPECT(f.says("all_reduce #1"));
    f = co_await failure_in(part.barrier());
    TUTTI_EXPECT(f.code == errc::communicator_failed);
    co_await world.barrier();
  }
}

// Also by an exception that does not end the rank.
void close(communicator& c, communicator& d, bool by_exception) {
  if (!by_exception) c = d = communicator();
  try {
    const communicator last_of_c = std::move(c), last_of_d = std::move(d);
    if (by_exception) throw std::logic_error("caught");
  } catch (const std::logic_error&) {
  }
}

// Rank 1 closes a communicator before others wait for it there, or while they do.
task<> closes_what_others_wait_on(communicator world, bool early, bool by_exception) {
  communicator c = co_await world.duplicate(), d = co_await world.duplicate();
  int x = 0, y = 0;
  if (world.rank() == 1) {
    co_await c.send(7, 0);
    if (early) close(c, d, by_exception);
    co_await world.barrier();
    if (!early) close(c, d, by_exception);
    co_await world.barrier();
    co_return;
  }
  std::vector<char> large(4 << 20);
  request receiving, sending, reducing;
  const auto begin = [&] {
    receiving = c.irecv(x, 1, 3);
    sending = c.isend(large, 1);
    reducing = start(d.all_reduce(y, sum));
  };
  if (!early) begin();
  co_await world.barrier();
  if (early) begin();
  for (request* waiting : {&receiving, &sending, &reducing}) {
    const failure f = co_await failure_awaiting(waiting);
    TUTTI_EXPECT(f.code == errc::peer_left);
    TUTTI_EXPECT(f.says("rank 1"));
    TUTTI_EXPECT((f.says("has closed world/") || waiting == &reducing));
  }
  const failure probing = co_await failure_in(c.probe(1, 3));
  TUTTI_EXPECT(probing.code == errc::peer_left);
  if (world.rank() == 0) co_await c.recv(x, 1);
  TUTTI_EXPECT((world.rank() != 0 || x == 7));
  co_await world.barrier();
}

// Rank 1 takes back a message and closes the communicator, when rank 0 has asked for the data and the answer is
// on its way. Meanwhile the loop of rank 1 does not turn: the message's first frame has to leave without that.
task<> takes_back_and_closes(communicator world, int source, std::atomic<bool>* asked) {
  communicator c = co_await world.duplicate();
  int x = 7;
  std::vector<char> large(4 << 20);
  if (world.rank() == 1) {
    co_await c.send(x, 0);
    co_await c.recv(x, 0);
    request sending = c.isend(large, 0, 1);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!*asked && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    TUTTI_EXPECT(*asked);
    sending = request();
    c = communicator();
  } else {
    co_await c.recv(x, 1);
    co_await c.send(x, 1);
    co_await c.probe(source, 1);
    request receiving = c.irecv(large, source, 1);
    *asked = true;
    const failure f = co_await failure_awaiting(&receiving);
    TUTTI_EXPECT(f.code == errc::peer_left);
    TUTTI_EXPECT(f.says("rank 1"));
    TUTTI_EXPECT(f.says("has closed world/"));
  }
  co_await world.barrier();
}

// One rank ends with "boom", and the expectations of the ranks `watching` hold. Their errors are collected
// separately, because run_local rethrows only the first.
template <class F>
void watch_boom(const std::vector<int>& watching, int ranks, const std::string& transport, F main) {
  std::vector<failure> failures(static_cast<std::size_t>(ranks), describe({}));
  const auto watched = [&](communicator world) {
    const int me = world.rank();
    task<> all = main(std::move(world));
    if (std::find(watching.begin(), watching.end(), me) == watching.end()) return all;
    return keep_failure(std::move(all), &failures[static_cast<std::size_t>(me)]);
  };
  CHECK_THROWS_WITH_AS(run_local(ranks, over(transport), watched), "boom", std::runtime_error);
  for (const failure& f : failures) CHECK(f.text == "");
}

template <class F>
void on_each_transport(int ranks, F main) {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(ranks, over(transport), main));
  }
}

}  // namespace

TEST_CASE("failure: an operation without a peer times out, and the error names it") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    const std::vector<failure> failures = failures_of(2, over(transport), [](communicator world) {
      return world.rank() == 0 ? recv_nobody_sends(std::move(world)) : stays_until_told(std::move(world));
    });
    for (const failure& f : failures) CHECK(f.text == "");
  }
}
TEST_CASE("failure: a collective that one rank does not call times out on all") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    for (const failure& f : failures_of(3, over(transport), a_barrier_that_one_rank_misses))
      CHECK(f.text == "");
  }
}
TEST_CASE("failure: two collectives time out, and one of them completes after all") {
  on_each_transport(3, two_take_too_long);
}
TEST_CASE("failure: the timeout starts with the operation") {
  on_each_transport(2, computes_longer_than_the_timeout);
}
TEST_CASE("failure: a rank waits for a peer that leaves") {
  for (const int ranks : {2, 3}) on_each_transport(ranks, leaves_while_waited_for);
}
TEST_CASE("failure: a peer that has closed the communicator ends waits for it") {
  for (const int ranks : {2, 3})
    for (const bool early : {true, false})
      for (const bool by_exception : {true, false})
        on_each_transport(ranks, [early, by_exception](communicator world) {
          return closes_what_others_wait_on(std::move(world), early, by_exception);
        });
}
TEST_CASE("failure: a receive whose message is taken back ends if its source has closed the communicator") {
  for (const int source : {1, any_source}) {
    std::atomic<bool> asked;
    on_each_transport(2, [source, &asked](communicator world) {
      asked = false;
      return takes_back_and_closes(std::move(world), source, &asked);
    });
  }
}
TEST_CASE("failure: a receive from any source ends when all have left") { on_each_transport(3, all_leave); }
TEST_CASE("failure: messages sent before leaving arrive") {
  on_each_transport(2, what_was_sent_before_leaving_arrives);
}
TEST_CASE("failure: a rank that left does not count as dead for ranks without a connection to it") {
  on_each_transport(3, leaves_unmet);
}
TEST_CASE("failure: a collective with a rank that has left fails") {
  for (const std::string& transport : transports) {
    for (const int ranks : {2, 3, 5}) {
      CAPTURE(transport);
      CAPTURE(ranks);
      const std::vector<failure> failures = failures_of(ranks, over(transport), leaves_before_a_collective);
      for (int r = 0; r < ranks; ++r) {
        const failure& f = failures[static_cast<std::size_t>(r)];
        CAPTURE(f.text);
        if (r == 1) {
          CHECK(f.code == errc::success);
        } else {
          CHECK((f.code == errc::peer_left || f.code == errc::peer_failed));
          CHECK(f.says("rank "));  // rank 1, or a rank that left because of it and is detected first
          CHECK(f.says("all_reduce"));
        }
      }
    }
  }
}
TEST_CASE("failure: run_local rethrows the first error, and no rank hangs") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    for (int round = 0; round < 20; ++round) {
      const int thrower = round % 3;
      CHECK_THROWS_WITH_AS(
          run_local(3, over(transport),
                    [thrower](communicator world) { return one_rank_throws(std::move(world), thrower); }),
          "boom", std::runtime_error);
      CHECK_THROWS_WITH_AS(run_local(3, over(transport), one_rank_throws_at_once), "boom",
                           std::runtime_error);
    }
  }
}
TEST_CASE("failure: run_local rethrows the cause, not the error that it had on another rank") {
  CHECK_THROWS_WITH_AS(run_local(2, over("shm"), the_cause_comes_last), "boom", std::runtime_error);
}
TEST_CASE("failure: failed_ranks() contains every rank that the error names") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    for (const int ranks : {2, 3, 5})
      for (const bool in_child : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(in_child);
        std::vector<int> others(static_cast<std::size_t>(ranks) - 1);
        std::iota(others.begin(), others.end(), 0);
        watch_boom(others, ranks, transport,
                   [in_child](communicator world) { return knows_who_threw(std::move(world), in_child); });
      }
    watch_boom({2}, 3, transport, knows_whom_others_lost);
  }
}
TEST_CASE("failure: errors name a rank by its number in the communicator and in the world") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    watch_boom({0, 1}, 3, transport, is_named_by_both_numbers);
  }
}
TEST_CASE("failure: a collective that all have entered completes although one rank then fails") {
  for (const int calls_before : {0, 20}) {  // by messages, and over shared memory
    std::atomic<int> failures = 0;
    on_each_transport(2, [&failures, calls_before](communicator world) {
      failures = 0;
      return completes_what_all_have_reached(std::move(world), calls_before, &failures);
    });
  }
}
TEST_CASE("failure: a collective completes from what has come before the failure") {
  for (const int calls_before : {0, 20})
    for (const bool parent : {false, true}) {
      CAPTURE(calls_before);
      CAPTURE(parent);
      for (const std::string& transport : transports) {
        CAPTURE(transport);
        std::atomic<int> step = 0;
        CHECK_NOTHROW(run_local(2, over(transport), [&step, calls_before, parent](communicator world) {
          return completes_from_what_has_come(std::move(world), calls_before, parent, &step);
        }));
      }
    }
}
TEST_CASE("failure: a communicator that one rank has given up before it had it fails on those that have it") {
  for (const bool timed_out : {false, true}) {
    CAPTURE(timed_out);
    for (const std::string& transport : transports) {
      CAPTURE(transport);
      std::atomic<int> step = 0;
      CHECK_NOTHROW(run_local(3, over(transport), [&step, timed_out](communicator world) {
        return gives_up_what_another_has_made(std::move(world), timed_out, &step);
      }));
    }
  }
}
TEST_CASE("failure: a collective completes if the failed rank had completed it") {
  on_each_transport(4, completes_what_the_failed_has_completed);
}
TEST_CASE("failure: an abort names the operations that it ends") {
  on_each_transport(3, aborts_while_others_wait);
}
TEST_CASE("failure: a collective cancelled on one rank fails on all") {
  on_each_transport(3, a_cancelled_collective);
  on_each_transport(3, a_dropped_collective);
}
TEST_CASE("failure: a user's reduction that throws fails the operation on all ranks") {
  for (const std::size_t n : {std::size_t{3}, std::size_t{5'000}, std::size_t{200'000}})
    for (const bool shared : {false, true}) {
      CAPTURE(n);
      CAPTURE(shared);
      on_each_transport(
          3, [=](communicator world) { return reduces_by_what_throws(std::move(world), n, shared); });
    }
}
TEST_CASE("failure: every call on a failed communicator fails with the cause") {
  on_each_transport(2, calls_on_a_failed_communicator);
}
