// SPDX-License-Identifier: Apache-2.0
// A program that runs its io_context itself: no runtime::run anywhere.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <thread>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

init_options alone() {
  init_options o;
  o.rank = 0;
  o.world_size = 1;
  return o;
}

// Uses all that asks for the loop of its thread.
task<int> program(runtime* rt) {
  co_await sleep_for(1ms);
  communicator world = co_await init(*rt, alone());
  int x = 20;
  co_await with_timeout(world.all_reduce(x, sum), 30s);
  x += co_await compute([] { return 1; });
  asio::steady_timer timer(rt->get_executor(), 1ms);
  co_await timer.async_wait(asio::deferred);
  co_await world.all_reduce(x, sum);
  co_return x;
}

asio::awaitable<int> program_from_asio(runtime* rt) {
  const int x = co_await program(rt)(asio::use_awaitable);
  co_return 2 * x;
}

struct outcome {
  std::exception_ptr failure;
  int value = 0;
  auto handler() {
    return [this](std::exception_ptr e, int v) {
      failure = e;
      value = v;
    };
  }
};

std::optional<tutti::test::failure> failure_of_run(asio::io_context& context) {
  try {
    context.run();
  } catch (...) {
    return describe(std::current_exception());
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("a task starts in the first handler of an io_context that the program runs itself") {
  asio::io_context context;
  runtime rt(context);
  outcome end;
  asio::post(rt.get_executor(), [&] { program (&rt)(end.handler()); });
  context.run();
  CHECK(!end.failure);
  CHECK(end.value == 21);
}

TEST_CASE("a task is awaited by an awaitable on an io_context that the program runs itself") {
  asio::io_context context;
  runtime rt(context);
  outcome end;
  asio::co_spawn(context, program_from_asio(&rt), end.handler());
  context.run();
  CHECK(!end.failure);
  CHECK(end.value == 42);
}

TEST_CASE("of two runtimes on one thread, a task belongs to the one whose io_context runs") {
  runtime earlier;
  earlier.run([](runtime* rt) -> task<> { co_await init(*rt, alone()); }(&earlier));
  asio::io_context context;
  runtime rt(context);
  outcome end;
  asio::post(rt.get_executor(), [&] { program (&rt)(end.handler()); });
  context.run();
  CHECK(!end.failure);
  CHECK(end.value == 21);
}

// The first thread is kept busy inside a handler: all that comes meanwhile comes to the second one.
TEST_CASE("an io_context that two threads run: the second thread is refused, and the first goes on") {
  asio::io_context context;
  runtime rt(context);
  outcome end, refused_start;
  std::promise<void> second_is_done;
  tutti::test::failure started, slept;
  std::optional<tutti::test::failure> ended;
  std::thread second;
  asio::post(context, [&] {
    program (&rt)(end.handler());  // a turn of the loop comes next, for its sleep
    asio::post(context, [&] {
      try {
        program (&rt)(refused_start.handler());
      } catch (...) {
        started = describe(std::current_exception());
      }
    });
    second = std::thread([&] {
      // The turn that comes first ends run(), and so does the same turn after the other handler.
      for (int runs = 0; runs < 3 && started.text.empty(); ++runs) ended = failure_of_run(context);
      second_is_done.set_value();
    });
    second_is_done.get_future().wait();
  });
  context.run();
  second.join();
  CHECK(started.code == errc::wrong_thread);
  CHECK(started.says("second thread"));
  REQUIRE(ended);
  CHECK(ended->code == errc::wrong_thread);
  CHECK(ended->says("second thread"));
  CHECK(!end.failure);
  CHECK(end.value == 21);
}

namespace {

// Resumed by Asio.
task<int> waits_for_a_timer(runtime* rt) {
  asio::steady_timer timer(rt->get_executor(), 0ms);
  co_await timer.async_wait(asio::deferred);
  co_return 7;
}

}  // namespace

TEST_CASE("a coroutine that Asio would resume on a second thread goes on on its own") {
  asio::io_context context;
  runtime rt(context);
  outcome end;
  std::promise<void> second_is_done;
  std::optional<tutti::test::failure> ended;
  std::thread second;
  asio::post(context, [&] {
    waits_for_a_timer (&rt)(end.handler());
    second = std::thread([&] {
      ended = failure_of_run(context);
      second_is_done.set_value();
    });
    second_is_done.get_future().wait();
  });
  context.run();
  second.join();
  REQUIRE(ended);
  CHECK(ended->code == errc::wrong_thread);
  CHECK(ended->says("second thread"));
  CHECK(!end.failure);
  CHECK(end.value == 7);
}
