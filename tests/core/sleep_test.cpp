// SPDX-License-Identifier: Apache-2.0
// sleep_for on a loop that sleeps itself, in scopes that end early, and on a loop that is stepped by hand.
#include "core/loop.hpp"
#include "core/running_task.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>

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

class clock_by_hand final : public core::environment {
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

TEST_CASE("sleep_for takes its time, and ends with its scope") {
  run_local(2, sleep_a_little);
  run_local(2, end_early);
}

TEST_CASE("a sleeping frame is destroyed, and leaves nothing to fire") {
  run_local(1, [](communicator) -> task<> {
    core::running_task sleeper;
    sleeper.start(sleep_unfinished(), [](void*, std::exception_ptr) noexcept {}, nullptr);
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

TEST_CASE(
    "a loop that is stepped by hand goes by the clock that it was given, and asks the system for nothing") {
  boost::asio::io_context context;
  clock_by_hand clock;
  core::loop loop(context, clock);
  loop.set_stepped();
  loop.step();
  int wakings = 0;
  core::running_task sleeper;
  sleeper.start(sleep_and_count(&wakings), [](void*, std::exception_ptr) noexcept {}, nullptr);
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
