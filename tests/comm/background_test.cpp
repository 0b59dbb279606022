// SPDX-License-Identifier: Apache-2.0
// A rank on a thread of its own.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/post.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <tutti/background.hpp>

using namespace tutti;
using namespace tutti::test;

namespace {

task<int> adds_up(communicator world) {
  int x = 41;
  co_await world.all_reduce(x, sum);
  co_return x + 1;
}
task<> nothing(communicator) { co_return; }
task<> throws(communicator) {
  throw std::runtime_error("not today");
  co_return;
}

}  // namespace

TEST_CASE("run_in_background returns main's value or rethrows its exception") {
  background b = run_in_background(adds_up);
  CHECK(b.join() == 42);
  CHECK_THROWS_AS(b.join(), error);
  background bad = run_in_background(throws);
  CHECK_THROWS_WITH(bad.join(), "not today");
}

TEST_CASE("what main holds goes when the rank ends, not when somebody joins it") {
  std::promise<void> held;
  std::future<void> gone = held.get_future();
  background b = run_in_background([held = std::make_shared<std::promise<void>>(std::move(held))](
                                       communicator world) -> task<> { return nothing(std::move(world)); });
  REQUIRE(gone.wait_for(patience) == std::future_status::ready);
  CHECK_THROWS_AS(gone.get(), std::future_error);  // the promise was destroyed
}

TEST_CASE("other threads reach its loop through its executor, and its destructor joins") {
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::promise<std::thread::id> where;
  std::future<std::thread::id> loop_thread = where.get_future();
  {
    background b = run_in_background([&where, gone](communicator world) -> task<> {
      return [](std::promise<std::thread::id>* w, std::shared_future<void> g, communicator) -> task<> {
        co_await tutti::compute([&g] { g.wait(); });
        w->set_value(std::this_thread::get_id());
      }(&where, gone, world);
    });
    std::promise<std::thread::id> posted;
    std::future<std::thread::id> there = posted.get_future();
    boost::asio::post(b.get_executor(), [&] { posted.set_value(std::this_thread::get_id()); });
    const std::thread::id id = there.get();
    CHECK(id != std::this_thread::get_id());
    go.set_value();
    CHECK(loop_thread.get() == id);
  }
}

TEST_CASE("its executor is valid after main has ended") {
  background b = run_in_background(adds_up);
  CHECK(b.join() == 42);
  boost::asio::post(b.get_executor(), [] { FAIL("nothing runs it"); });
}
