// SPDX-License-Identifier: Apache-2.0
// Recovery from a failure: the remaining ranks agree on who they are, whatever fails before and meanwhile. A
// rank that throws closes its connections like one that dies. kill_drill_test has processes that are killed.
#include "support/default_timeout.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

struct dies : std::runtime_error {
  dies() : std::runtime_error("dies") {}
};

// The ranks of `c` in the numbering of `world`.
task<std::vector<int>> members_of(communicator c, int world_rank) {
  std::vector<int> all(static_cast<std::size_t>(c.size()));
  co_await c.all_gather(world_rank, all);
  co_return all;
}

task<> works(communicator c, int world_rank) {
  const std::vector<int> all = co_await members_of(c, world_rank);
  std::vector<double> data(1000, world_rank + 1);
  co_await c.all_reduce(data, sum);
  const double wanted = std::accumulate(all.begin(), all.end(), 0) + c.size();
  for (const double x : data) TUTTI_EXPECT(x == wanted);
}

// Shrinks until it gets a communicator, or an error that a retry cannot cure.
task<communicator> mended(communicator c) {
  for (;;) {
    result<communicator> r = co_await as_result(c.shrink());
    if (!r.error) co_return std::move(r.value);
    if (r.error == errc::shut_down || r.error == errc::invalid_argument) throw error(errc::system, r.message);
  }
}

// All ranks are here. The last to know may find that others have failed the communicator already.
task<> come_together(communicator c) { (void)co_await as_result(c.barrier()); }

task<> sleep_for(communicator c, std::chrono::microseconds how_long) {
  boost::asio::steady_timer timer(c.get_executor(), how_long);
  co_await timer.async_wait(boost::asio::deferred);
}

std::string to_text(const std::vector<int>& v) {
  std::string text;
  for (const int x : v) text += (text.empty() ? "" : " ") + std::to_string(x);
  return text;
}

// Results of the ranks, for the test to check after they have ended.
class notes {
 public:
  void add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> sorted() {
    std::sort(lines_.begin(), lines_.end());
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

void check_all_say(notes& all, std::size_t ranks, const std::string& what) {
  const std::vector<std::string> lines = all.sorted();
  CHECK(lines.size() == ranks);
  for (const std::string& line : lines) CHECK(line == what);
}

// ---- the loop of a training program ----

task<> training(communicator world, std::vector<int> victims, notes* said) {
  const int me = world.rank();
  int step = 0;
  while (step < 20) {
    if (const auto place = std::find(victims.begin(), victims.end(), me);
        place != victims.end() && step == 5 + 3 * (place - victims.begin()))
      throw dies();
    std::vector<float> gradient(5000, 1);
    const auto r = co_await as_result(world.all_reduce(gradient, sum));
    if (r.error) {
      world = co_await mended(world);
      // Some ranks were a step ahead.
      co_await world.all_reduce(step, min);
      continue;
    }
    for (const float x : gradient) TUTTI_EXPECT(x == static_cast<float>(world.size()));
    ++step;
  }
  said->add(to_text(co_await members_of(world, me)));
}

void train(int ranks, const std::vector<int>& victims, const std::string& transport) {
  CAPTURE(transport);
  CAPTURE(ranks);
  notes said;
  CHECK_THROWS_AS(run_local(ranks, over(transport),
                            [&](communicator world) { return training(std::move(world), victims, &said); }),
                  dies);
  std::vector<int> left;
  for (int r = 0; r < ranks; ++r)
    if (std::find(victims.begin(), victims.end(), r) == victims.end()) left.push_back(r);
  check_all_say(said, left.size(), to_text(left));
}

// ---- no rank is dead ----

task<> all_come_back(communicator world, int way) {
  const int me = world.rank();
  float x = 1;
  switch (way) {
    case 0:  // different calls
      if (me == 1) {
        (void)co_await as_result(world.barrier());
      } else {
        (void)co_await as_result(world.all_reduce(x, sum));
      }
      break;
    case 1:  // cancelled on one rank
      if (me == 1) {
        request reducing = start(world.all_reduce(x, sum));
        reducing.cancel();
        (void)co_await failure_awaiting(&reducing);
      } else {
        (void)co_await as_result(world.all_reduce(x, sum));
      }
      break;
    case 2:  // timed out on one rank
      if (me != 1) (void)co_await as_result(with_timeout(world.barrier(), 20ms));
      break;
    case 3:
      if (me == 1) world.abort();
      break;
    default:  // no failure, and other ranks have pending operations
      if (me != 1) {
        const failure f = co_await failure_in(world.recv(x, 1, 77));
        TUTTI_EXPECT(f.code == errc::cancelled);
        TUTTI_EXPECT(f.says("rank 1 (host"));
        TUTTI_EXPECT(f.says("has called shrink on world"));
      }
  }
  communicator next = co_await world.shrink();
  TUTTI_EXPECT(next.size() == world.size());
  TUTTI_EXPECT(next.rank() == me);
  TUTTI_EXPECT(next.name().find("world/shrink") == 0);
  TUTTI_EXPECT(world.failed_ranks().empty());
  co_await works(next, me);
  // Again from the old communicator, and from the new one.
  communicator other = co_await world.shrink();
  co_await works(other, me);
  co_await works(next, me);
  co_await other.barrier();  // all have finished with `next`
  next.abort();
  communicator third = co_await next.shrink();
  TUTTI_EXPECT(third.name().rfind("/shrink") == std::string("world").size());
  co_await works(third, me);
  co_await works(other, me);
}

task<> messages_stay_with_the_old_one(communicator world) {
  const int me = world.rank(), right = (me + 1) % world.size();
  const std::vector<int> stale(10, -1), large(100'000, -1);
  int x = 0;
  for (int i = 0; i < 5; ++i) co_await world.send(stale, right, 3);
  request announced = world.isend(large, right, 3);
  co_await come_together(world);
  if (me == 0) world.abort();
  communicator next = co_await world.shrink();
  const failure f = co_await failure_awaiting(&announced);
  TUTTI_EXPECT(f.code != errc::success);
  co_await next.barrier();
  request sending = next.isend(me, right, 3);
  const status st = co_await next.recv(x, any_source, any_tag);
  TUTTI_EXPECT(st.bytes == sizeof x);
  TUTTI_EXPECT(x == st.source);
  co_await sending;
  co_await works(next, me);
}

// ---- ranks that do not take part ----

// `naming`: how many errors name `idle`. A busy machine may keep a rank from answering in the tenths of a
// second that shrink allows; then errors name that rank, too, or alone.
task<> one_does_not_call_it(communicator world, int idle, std::atomic<int>* refused, std::atomic<int>* naming,
                            notes* said) {
  co_await come_together(world);
  set_default_timeout(world, 500ms);
  if (world.rank() == idle) {
    while (refused->load() < world.size() - 1) co_await sleep_for(world, 2ms);
    // A late rank gets the same result as the others.
    const failure late = co_await failure_in(world.shrink());
    TUTTI_EXPECT(late.code == errc::timed_out);
  } else {
    const failure f = co_await failure_in(world.shrink());
    ++*refused;
    const bool names =
        f.says("shrink was not called by rank ") && f.says("rank " + std::to_string(idle) + " (host");
    if (names) ++*naming;
    if (f.code != errc::timed_out || !f.says("shrink on world") ||
        !(names || f.says("which gathers the answers, does not say anything")))
      throw std::runtime_error("not that reason: " + f.text);
  }
  // This time all ranks call it.
  set_default_timeout(world, patience);
  communicator next = co_await world.shrink();
  co_await works(next, world.rank());
  said->add("well");
}

task<> one_has_left(communicator world, int leaver) {
  const int me = world.rank();
  co_await come_together(world);
  if (me == leaver) co_return;
  int x = 0;
  const failure f = co_await failure_in(world.recv(x, leaver, 1));
  TUTTI_EXPECT((f.code == errc::peer_left || f.says("has called shrink")));
  communicator next = co_await world.shrink();
  TUTTI_EXPECT(next.size() == world.size() - 1);
  TUTTI_EXPECT(world.failed_ranks().empty());
  co_await works(next, me);
}

task<> one_has_let_go(communicator world, int which) {
  const int me = world.rank();
  communicator part = co_await world.duplicate();
  co_await world.barrier();
  if (me == which) {
    part = communicator();
  } else {
    communicator next = co_await part.shrink();
    TUTTI_EXPECT(next.size() == world.size() - 1);
    TUTTI_EXPECT(part.failed_ranks().empty());
    co_await works(next, me);
  }
  co_await world.barrier();
}

task<> one_gives_up(communicator world, int which, int way, std::atomic<bool>* given_up) {
  const int me = world.rank();
  co_await come_together(world);
  if (me == which) {
    if (way == 0) {
      const failure f = co_await failure_in(with_timeout(world.shrink(), 5ms));
      TUTTI_EXPECT(f.code == errc::timed_out);
    } else {
      auto leaving = start(world.shrink());
      co_await boost::asio::post(world.get_executor(), boost::asio::deferred);
      if (way == 1) leaving.cancel();
      if (way == 1) TUTTI_EXPECT((co_await failure_awaiting(&leaving)).code == errc::cancelled);
    }
    *given_up = true;
  } else if (me == (which + 1) % world.size()) {
    // Not before the other rank has given up, and the gathering rank knows it.
    while (!*given_up && world.failed_ranks().empty()) co_await sleep_for(world, 2ms);
    co_await sleep_for(world, 100ms);
    const failure f = co_await failure_in(world.shrink());
    TUTTI_EXPECT((f.code == errc::cancelled || f.code == errc::timed_out));
  } else {
    const failure f = co_await failure_in(world.shrink());
    TUTTI_EXPECT((f.code == errc::cancelled || f.code == errc::timed_out));
    TUTTI_EXPECT(f.says("shrink"));
  }
  communicator next = co_await world.shrink();
  TUTTI_EXPECT(next.size() == world.size());
  co_await works(next, me);
}

// ---- communicators made from communicators ----

task<> parts_follow(communicator world) {
  const int me = world.rank();
  communicator half = co_await world.split(me % 2, 0);
  communicator pair = co_await half.duplicate();
  communicator untouched = co_await world.duplicate();
  co_await world.barrier();
  if (me == 0) half.abort();
  // The other half fails no communicator. This half fails its own, and those made from it.
  if (me % 2 == 0) {
    int x = 0;
    const failure f = co_await failure_in(pair.recv(x, (pair.rank() + 1) % pair.size(), 1));
    TUTTI_EXPECT((f.code == errc::cancelled || f.code == errc::communicator_failed));
    TUTTI_EXPECT(f.says("was aborted by rank 0"));
    half = co_await half.shrink();
    TUTTI_EXPECT(half.size() == (world.size() + 1) / 2);
  }
  co_await works(half, me);
  co_await works(untouched, me);
  // The parent has not failed and can make new ones.
  communicator again = co_await world.duplicate();
  co_await works(again, me);
  // If the parent fails, all ranks get an error, even those that wait only for ranks that did not call it.
  const std::vector<int> others = {1, 2};
  communicator apart = co_await world.group(others);
  co_await come_together(world);
  if (apart) {
    int x = 0;
    const failure f = co_await failure_in(apart.recv(x, 1 - apart.rank(), 1));
    TUTTI_EXPECT((f.code == errc::cancelled || f.code == errc::communicator_failed));
    TUTTI_EXPECT(f.says("has called shrink on world"));
  }
  communicator next = co_await world.shrink();
  const failure f = co_await failure_in(half.barrier());
  TUTTI_EXPECT(f.code != errc::success);
  TUTTI_EXPECT(f.says("has called shrink on world"));
  co_await works(next, me);
  half = co_await next.split(me % 2, 0);
  co_await works(half, me);
}

// ---- at random ----

// Every rank dies at a random time, or not at all: during collectives, messages or shrinking.
task<> storm(communicator world, std::uint64_t seed, notes* said) {
  const int me = world.rank();
  random_numbers same(seed), own(seed * 31 + static_cast<std::uint64_t>(me));
  const bool mortal = me != static_cast<int>(same.below(static_cast<std::size_t>(world.size())));
  communicator c = world;
  for (int step = 0; step < 12; ++step) {
    if (mortal && own.one_in(12)) throw dies();
    std::vector<int> data(1 + same.below(20'000), 1);
    std::string failed;
    try {
      request reducing = start(c.all_reduce(data, sum));
      if (mortal && own.one_in(15)) throw dies();
      co_await reducing;
      for (const int x : data)
        if (x != c.size()) throw std::logic_error("a wrong sum");
    } catch (const error& e) {
      failed = e.what();
    }
    if (failed.empty()) continue;
    for (bool whole = false; !whole;) {
      if (mortal && own.one_in(10)) throw dies();
      request shrinking_soon;
      communicator next = co_await mended(c);
      TUTTI_EXPECT(next.size() <= c.size());
      c = next;
      // All are in the same group, in the same order, or get the error that it has failed too.
      std::vector<int> all(static_cast<std::size_t>(c.size()));
      const auto r = co_await as_result(c.all_gather(me, all));
      if (r.error) continue;
      TUTTI_EXPECT(std::is_sorted(all.begin(), all.end()));
      TUTTI_EXPECT(all[static_cast<std::size_t>(c.rank())] == me);
      whole = true;
    }
    // Ranks that were ahead wait for the others. From here on all have the same count.
    const auto r = co_await as_result(c.all_reduce(step, max));
    if (r.error) --step;
    same = random_numbers(seed + static_cast<std::uint64_t>(step));
  }
  said->add("lived");
}

}  // namespace

TEST_CASE("shrink: training continues with the remaining ranks") {
  for (const std::string& transport : transports) {
    train(3, {1}, transport);
    train(2, {0}, transport);
    train(4, {0}, transport);
    train(5, {0, 1}, transport);
    train(5, {4, 0, 2}, transport);
  }
}
TEST_CASE("shrink: two die at once") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    notes said;
    CHECK_THROWS_AS(run_local(5, over(transport),
                              [&](communicator world) -> task<> {
                                const int me = world.rank();
                                co_await come_together(world);
                                if (me == 0 || me == 3) throw dies();
                                int x = 0;
                                (void)co_await as_result(world.all_reduce(x, sum));
                                communicator next = co_await mended(world);
                                while (next.size() > 3) next = co_await mended(next);
                                co_await works(next, me);
                                said.add(to_text(co_await members_of(next, me)));
                              }),
                    dies);
    check_all_say(said, 3, "1 2 4");
  }
}
TEST_CASE("shrink: all agree on the dead ranks") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    notes said;
    CHECK_THROWS_AS(
        run_local(4, over(transport),
                  [&](communicator world) -> task<> {
                    const int me = world.rank();
                    co_await come_together(world);
                    if (me == 2) throw dies();
                    int x = 0;
                    const failure f = co_await failure_in(world.all_reduce(x, sum));
                    TUTTI_EXPECT((f.code == errc::peer_failed || f.code == errc::communicator_failed));
                    TUTTI_EXPECT(f.says("rank 2 (host"));
                    communicator next = co_await world.shrink();
                    said.add(to_text(world.failed_ranks()));
                    TUTTI_EXPECT(next.failed_ranks().empty());
                    co_await works(next, me);
                  }),
        dies);
    check_all_say(said, 3, "2");
  }
}
TEST_CASE("shrink: without a failure all ranks are members again") {
  for (const std::string& transport : transports) {
    for (int way = 0; way < 5; ++way) {
      CAPTURE(transport);
      CAPTURE(way);
      for (const int ranks : {2, 3, 4})
        CHECK_NOTHROW(run_local(ranks, over(transport),
                                [way](communicator world) { return all_come_back(std::move(world), way); }));
    }
  }
}
TEST_CASE("shrink: a world of one") {
  CHECK_NOTHROW(run_local(1, over("shm"), [](communicator world) -> task<> {
    world.abort();
    communicator next = co_await world.shrink();
    TUTTI_EXPECT(next.size() == 1);
    co_await works(next, 0);
  }));
}
TEST_CASE("shrink: messages of the old communicator stay there") {
  for (const std::string& transport : transports)
    CHECK_NOTHROW(run_local(3, over(transport), messages_stay_with_the_old_one));
}
TEST_CASE("shrink: a member that does not call it is named, and no rank waits for ever") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    std::atomic<int> naming{0};
    for (const int idle : {0, 1, 2}) {
      CAPTURE(idle);
      notes said;
      std::atomic<int> refused{0};
      CHECK_NOTHROW(run_local(3, over(transport), [&](communicator world) {
        return one_does_not_call_it(std::move(world), idle, &refused, &naming, &said);
      }));
      check_all_say(said, 3, "well");
    }
    CHECK(naming > 0);
  }
}
TEST_CASE("shrink: ranks that left or closed the communicator are left out") {
  for (const std::string& transport : transports) {
    for (const int which : {0, 1, 2}) {
      CAPTURE(transport);
      CAPTURE(which);
      CHECK_NOTHROW(run_local(3, over(transport),
                              [which](communicator world) { return one_has_left(std::move(world), which); }));
      CHECK_NOTHROW(run_local(3, over(transport), [which](communicator world) {
        return one_has_let_go(std::move(world), which);
      }));
    }
  }
}
TEST_CASE("shrink: cancelled on one rank, it ends on all, and can be called again") {
  for (const std::string& transport : transports) {
    for (const int which : {0, 1, 2}) {
      for (int way = 0; way < 3; ++way) {
        CAPTURE(transport);
        CAPTURE(which);
        CAPTURE(way);
        std::atomic<bool> given_up{false};
        CHECK_NOTHROW(run_local(3, over(transport), [which, way, &given_up](communicator world) {
          return one_gives_up(std::move(world), which, way, &given_up);
        }));
      }
    }
  }
}
TEST_CASE("shrink: communicators fail with the one they were made from") {
  for (const std::string& transport : transports) CHECK_NOTHROW(run_local(4, over(transport), parts_follow));
}
TEST_CASE("shrink: deaths at any time") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  for (int round = 0; round < 20; ++round) {
    const std::string& transport = transports[static_cast<std::size_t>(round) % 2];
    CAPTURE(transport);
    CAPTURE(round);
    notes said;
    try {
      run_local(2 + round % 5, over(transport), [&](communicator world) {
        return storm(std::move(world), seed + static_cast<std::uint64_t>(round), &said);
      });
    } catch (const dies&) {
    }
    CHECK(!said.sorted().empty());
  }
}
