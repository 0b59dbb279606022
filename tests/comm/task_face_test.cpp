// SPDX-License-Identifier: Apache-2.0
// Tasks started by Asio's completion tokens.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <future>
#include <stdexcept>
#include <variant>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

task<int> adds(communicator world, int x) {
  co_await world.all_reduce(x, sum);
  co_return x;
}
task<> receives(communicator world, int* x) { co_await world.recv(*x, any_source); }
task<> throws() {
  throw std::runtime_error("as it was told to");
  co_return;
}

asio::awaitable<void> from_asio(communicator world, int* result) {
  using namespace asio::experimental::awaitable_operators;
  *result = co_await adds(world, 20)(asio::use_awaitable);
  // The slower branch is cancelled through its slot.
  int x = 0;
  asio::steady_timer timer(world.get_executor(), 2ms);
  const auto first =
      co_await (receives(world, &x)(asio::use_awaitable) || timer.async_wait(asio::use_awaitable));
  TUTTI_EXPECT(first.index() == 1);
}

}  // namespace

TEST_CASE("a boost::asio::awaitable awaits a task, and cancels it in a race") {
  run_local(2, [](communicator world) -> task<> {
    int result = 0;
    co_await asio::co_spawn(world.get_executor(), from_asio(world, &result), asio::deferred);
    TUTTI_EXPECT(result == 40);
    co_await world.barrier();
  });
}

TEST_CASE("use_future and callbacks start a task, and a slot cancels it") {
  run_local(1, [](communicator world) -> task<> {
    std::future<int> f = adds(world, 7)(asio::use_future);
    std::exception_ptr thrown;
    bool called = false;
    throws()([&](std::exception_ptr e) {
      thrown = e;
      called = true;
    });
    TUTTI_EXPECT(!called);  // never inside its initiation
    asio::cancellation_signal stop;
    int x = 0;
    std::exception_ptr ended;
    receives(world, &x)(asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr e) { ended = e; }));
    stop.emit(asio::cancellation_type::terminal);
    for (int i = 0; i < 100 && !(called && ended && f.wait_for(0s) == std::future_status::ready); ++i) {
      asio::steady_timer timer(world.get_executor(), 1ms);
      co_await timer.async_wait(asio::deferred);
    }
    TUTTI_EXPECT(f.get() == 7);
    TUTTI_EXPECT(describe(thrown).says("as it was told to"));
    TUTTI_EXPECT(describe(ended).code == errc::cancelled);
  });
}

TEST_CASE("a token on a thread without a runtime does not start a task") {
  CHECK_THROWS_AS(throws()([](std::exception_ptr) {}), error);
}

namespace {

task<int> answers() { co_return 42; }
asio::awaitable<void> awaits_without_a_runtime(failure* value, failure* nothing, failure* in_tuple) {
  try {
    co_await answers()(asio::use_awaitable);
  } catch (...) {
    *value = describe(std::current_exception());
  }
  try {
    co_await throws()(asio::use_awaitable);
  } catch (...) {
    *nothing = describe(std::current_exception());
  }
  const auto result = co_await answers()(asio::as_tuple(asio::use_awaitable));
  *in_tuple = describe(std::get<0>(result));
}

}  // namespace

TEST_CASE("an awaitable that awaits a task on a thread without a runtime gets wrong_thread") {
  asio::io_context context;
  std::array<failure, 3> failures{};
  asio::co_spawn(context, awaits_without_a_runtime(&failures[0], &failures[1], &failures[2]), asio::detached);
  context.run_for(patience);
  CHECK(context.stopped());
  for (const failure& f : failures) {
    CHECK(f.code == errc::wrong_thread);
    CHECK(f.says("runs no tutti::runtime"));
  }
}
