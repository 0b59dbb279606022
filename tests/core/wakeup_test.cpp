// SPDX-License-Identifier: Apache-2.0
#include "core/wakeup.hpp"

#include "core/running_task.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>

#include <boost/asio/post.hpp>
#include <tutti/scope.hpp>

using namespace tutti;
using namespace std::chrono_literals;

TEST_CASE("a notification ends one wait, before it or during it") {
  boost::asio::io_context context;
  core::wakeup w(context.get_executor());
  w.notify();
  CHECK(test::run_task(context, w.wait(core::time_point::max())));
  CHECK_FALSE(test::run_task(context, w.wait(core::deadline_after(1ms))));
  boost::asio::post(context, [&] { w.notify(); });
  CHECK(test::run_task(context, w.wait(core::deadline_after(50s))));
}

TEST_CASE("a wait ends at its deadline, not before, and at once if that has passed") {
  boost::asio::io_context context;
  core::wakeup w(context.get_executor());
  const auto begin = core::clock::now();
  CHECK_FALSE(test::run_task(context, w.wait(begin + 20ms)));
  CHECK(core::clock::now() - begin >= 20ms);
  CHECK_FALSE(test::run_task(context, w.wait(begin)));
}

TEST_CASE("a wait may be dropped") {
  boost::asio::io_context context;
  {
    core::wakeup w(context.get_executor());
    core::background_tasks tasks;
    const auto wait = [](core::wakeup& on) -> task<> { co_await on.wait(core::time_point::max()); };
    tasks.start(wait(w));
    w.notify();
  }
  CHECK_NOTHROW(context.run());
}

TEST_CASE("a wait ends with its scope, for the scope's reason") {
  boost::asio::io_context context;
  core::wakeup w(context.get_executor());
  test::failure seen[2];
  const auto wait = [](core::wakeup& on, test::failure* out) -> task<> {
    for (test::failure* f = out; f < out + 2; ++f) {
      try {
        co_await on.wait(core::time_point::max(), "looking");
      } catch (...) {
        *f = test::describe(std::current_exception());
      }
    }
  };
  scope work;
  work.spawn(wait(w, seen));
  work.cancel();
  test::run_until(context, [&] { return work.running() == 0; });
  for (const test::failure& f : seen) {  // stopped while it waited, and before
    CHECK(f.code == errc::cancelled);
    CHECK_MESSAGE(f.says("looking: its scope was cancelled"), f.text);
  }
}

TEST_CASE("deadlines do not overflow, and the remaining time is never negative") {
  CHECK(core::deadline_after(std::chrono::milliseconds::max()) == core::time_point::max());
  CHECK(core::time_left(core::time_point::max()) == std::chrono::milliseconds::max());
  CHECK(core::time_left(core::clock::now() - 5s) == 0ms);
  const core::time_point deadline = core::deadline_after(100s);
  const auto left = core::time_left(deadline);
  CHECK(left > 90s);
  CHECK(left <= 100s);
}
