// SPDX-License-Identifier: Apache-2.0
// A program that runs its io_context itself, without runtime::run.
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
#include <stdexcept>
#include <thread>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

// Uses everything that needs the loop of its thread.
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

// A program with its own io_context and runtime, and the result of its task.
struct own_loop {
  asio::io_context context;
  runtime rt{context};
  std::exception_ptr failed;
  int value = 0;

  auto handler() {
    return [this](std::exception_ptr e, int v) {
      failed = e;
      value = v;
    };
  }
  void run_to(int expected) {
    context.run();
    CHECK(!failed);
    CHECK(value == expected);
  }
  // Called by a handler: blocks this thread while a second one runs the io_context, at most `runs` times and
  // until `done()`. Returns the error of the last run.
  template <class Done>
  failure run_on_second_thread(int runs, Done done) {
    failure last;
    std::thread([&] {
      for (int i = 0; i < runs && !done(); ++i) last = failure_of([this] { context.run(); });
    }).join();
    return last;
  }
};

void check_refused(const failure& f) {
  CHECK(f.code == errc::wrong_thread);
  CHECK(f.says("second thread"));
}

}  // namespace

TEST_CASE("a task starts in the first handler of an io_context that the program runs itself") {
  own_loop own;
  asio::post(own.rt.get_executor(), [&] { program (&own.rt)(own.handler()); });
  own.run_to(21);
}

// The loop waits for the message and polls Asio meanwhile, so that a handler may throw through it.
task<> waits_beside_handlers(runtime* rt, int* x) {
  communicator world = co_await init(*rt, alone());
  request receiving = world.irecv(*x, 0);
  for (int i = 0; i < 3; ++i) asio::post(rt->get_executor(), [] { throw std::runtime_error("mine"); });
  co_await sleep_for(20ms);
  const int sent = 5;
  co_await world.send(sent, 0);
  co_await receiving;
}

TEST_CASE("after a handler has thrown through run(), the loop goes on") {
  own_loop own;
  int x = 0, thrown = 0;
  bool ended = false;
  asio::post(own.context, [&] {
    waits_beside_handlers(&own.rt, &x)([&](std::exception_ptr e) {
      own.failed = e;
      ended = true;
    });
  });
  for (bool again = true; again;) {
    again = false;
    try {
      own.context.run_for(20s);
    } catch (const std::runtime_error&) {
      ++thrown;
      again = true;
    }
  }
  CHECK(thrown == 3);
  CHECK(ended);
  CHECK(!own.failed);
  CHECK(x == 5);
}

TEST_CASE("a task is awaited by an awaitable on an io_context that the program runs itself") {
  own_loop own;
  asio::co_spawn(own.context, program_from_asio(&own.rt), own.handler());
  own.run_to(42);
}

TEST_CASE("with two runtimes on one thread, a task belongs to the one whose io_context runs") {
  runtime earlier;
  earlier.run([](runtime* rt) -> task<> { co_await init(*rt, alone()); }(&earlier));
  own_loop own;
  asio::post(own.rt.get_executor(), [&] { program (&own.rt)(own.handler()); });
  own.run_to(21);
}

TEST_CASE("a runtime whose io_context does not run is refused while another one runs") {
  runtime first, second, third(first.context());
  const auto both = [](runtime* other, failure* refused) -> task<> {
    const auto joined = co_await as_result(init(*other, alone()));
    refused->code = static_cast<errc>(joined.error.value());
    refused->text = joined.message;
  };
  failure refused;
  first.run([](runtime* a, runtime* b, failure* into, task<> (*join)(runtime*, failure*)) -> task<> {
    const communicator world = co_await init(*a, alone());
    co_await join(b, into);
  }(&first, &second, &refused, both));
  CHECK(refused.code == errc::wrong_thread);
  CHECK(refused.text.find("runtime second(first.context())") != std::string::npos);
  first.run(both(&third, &refused));
  CHECK(refused.code == errc::success);
  second.run(both(&second, &refused));
  CHECK(refused.code == errc::success);
}

TEST_CASE("if two threads run an io_context, the second is refused and the first continues") {
  own_loop own;
  failure started;
  failure ended;
  asio::post(own.context, [&] {
    program (&own.rt)(own.handler());  // a turn of the loop follows, because of its sleep
    asio::post(own.context, [&] { started = failure_of([&] { program (&own.rt)(own.handler()); }); });
    // The first turn ends run(), and so does the same turn after the other handler.
    ended = own.run_on_second_thread(3, [&] { return !started.text.empty(); });
  });
  own.run_to(21);
  check_refused(started);
  check_refused(ended);
}

namespace {

// Resumed by Asio.
task<int> waits_for_a_timer(runtime* rt) {
  asio::steady_timer timer(rt->get_executor(), 0ms);
  co_await timer.async_wait(asio::deferred);
  co_return 7;
}

}  // namespace

TEST_CASE("a coroutine that Asio would resume on a second thread continues on its own thread") {
  own_loop own;
  failure ended;
  asio::post(own.context, [&] {
    waits_for_a_timer (&own.rt)(own.handler());
    ended = own.run_on_second_thread(1, [] { return false; });
  });
  own.run_to(7);
  check_refused(ended);
}
