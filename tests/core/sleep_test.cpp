// SPDX-License-Identifier: Apache-2.0
// sleep_for on a sleeping loop, in scopes that end early, and on a loop that the test runs step by step.
#include "core/loop.hpp"
#include "core/running_task.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <limits>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

task<> sleep_a_little(communicator world) {
  const auto start = std::chrono::steady_clock::now();
  co_await sleep_for(3ms);
  TUTTI_EXPECT(std::chrono::steady_clock::now() - start >= 3ms);
  co_await sleep_for(0ms);
  co_await sleep_for(-1h);
  co_await world.barrier();
}

task<int> seven_after_an_hour() {
  co_await sleep_for(1h);
  co_return 7;
}

task<> end_early(communicator world) {
  const auto start = now();
  const failure f = co_await failure_in(with_timeout(seven_after_an_hour(), 2ms));
  TUTTI_EXPECT(f.code == errc::timed_out);
  const auto first = co_await when_any(sleep_for(1h), world.barrier());
  TUTTI_EXPECT(first.index() == 1);
  TUTTI_EXPECT(now() - start < 30min);
}

task<> sleep_unfinished() { co_await sleep_for(1h); }

class clock_by_hand final : public core::platform {
 public:
  core::time_point now() noexcept override { return time; }
  std::uint64_t random() noexcept override { return 4; }
  core::time_point time{1h};
};

task<> sleep_and_count(int* wakings) {
  for (;;) {
    co_await sleep_for(10s);
    ++*wakings;
  }
}

}  // namespace

TEST_CASE("sleep_for lasts its duration, and ends with its scope") {
  run_local(2, sleep_a_little);
  run_local(2, end_early);
}

namespace {

template <class Duration>
task<> never_by_itself(Duration d) {
  const failure slept = co_await failure_in(with_timeout(sleep_for(d), 1ms));
  TUTTI_EXPECT(slept.code == errc::timed_out);
  co_await with_timeout(sleep_for(1ms), d);
}

task<> sleep_for_ever(communicator) {
  using std::chrono::duration;
  co_await never_by_itself(std::chrono::hours::max());
  co_await never_by_itself(std::chrono::nanoseconds::max());
  co_await never_by_itself(std::chrono::years::max());
  co_await never_by_itself(duration<double>(1e300));
  co_await never_by_itself(duration<float>(std::numeric_limits<float>::infinity()));
  co_await with_deadline(sleep_for(1ms), std::chrono::steady_clock::time_point::max());
  co_await sleep_for(std::chrono::hours::min());
  const failure past = co_await failure_in(with_timeout(sleep_for(1h), std::chrono::hours::min()));
  TUTTI_EXPECT(past.code == errc::timed_out);
  const failure zero = co_await failure_in(with_timeout(sleep_for(1h), 0ms));
  TUTTI_EXPECT(zero.code == errc::timed_out);
  TUTTI_EXPECT(zero.says("not done within 0 ms (with_timeout)"));
}

// Runs until the other rank's message, a timer of the loop and one of Asio's have completed.
task<> poll_without_rest(communicator world) {
  int theirs = -1;
  request receiving = world.irecv(theirs, 1 - world.rank());
  boost::asio::steady_timer timer(world.get_executor(), 1ms);
  bool woken = false;
  timer.async_wait([&woken](boost::system::error_code) { woken = true; });
  const int mine = world.rank();
  request sending = world.isend(mine, 1 - world.rank());
  while (!receiving.done() || !woken) co_await sleep_for(0s);
  co_await receiving;
  co_await sending;
  TUTTI_EXPECT(theirs == 1 - mine);
}

}  // namespace

TEST_CASE("a duration beyond the range of the clock lasts for ever") {
  run_local(1, sleep_for_ever);
  init_options endless;
  endless.timeout = std::chrono::milliseconds::max();
  endless.silence_limit = std::chrono::milliseconds::max();
  endless.suspect_grace = std::chrono::milliseconds::max();
  run_local(2, endless, sleep_a_little);
}

TEST_CASE("repeated sleeps of no duration let the loop turn") { run_local(2, poll_without_rest); }

TEST_CASE("a destroyed sleeping frame leaves no timer") {
  run_local(1, [](communicator) -> task<> {
    core::running_task sleeper;
    sleeper.start(sleep_unfinished());
    TUTTI_EXPECT(sleeper.running());
    sleeper.stop();
    co_await sleep_for(1ms);
  });
}

TEST_CASE("sleep_for needs a loop") {
  boost::asio::io_context context;
  std::exception_ptr caught;
  core::running_task sleeper;
  sleeper.start(
      sleep_unfinished(),
      [](void* owner, std::exception_ptr failure) noexcept {
        *static_cast<std::exception_ptr*>(owner) = failure;
      },
      &caught);
  CHECK(describe(caught).code == errc::wrong_thread);
}

TEST_CASE("a loop that the test runs step by step uses the given clock, and never the system's") {
  boost::asio::io_context context;
  clock_by_hand clock;
  core::loop loop(context, clock);
  loop.set_stepped();
  loop.step();
  int wakings = 0;
  core::running_task sleeper;
  sleeper.start(sleep_and_count(&wakings));
  CHECK(loop.engine().timers().next() == clock.time + 10s);
  CHECK_FALSE(loop.step());
  clock.time += 10s;
  CHECK(loop.step());
  CHECK(wakings == 1);
  CHECK_FALSE(loop.step());
  clock.time += 1h;
  CHECK(loop.step());
  CHECK(wakings == 2);
  CHECK(context.poll() == 0);
  CHECK(now() == clock.time);
}
