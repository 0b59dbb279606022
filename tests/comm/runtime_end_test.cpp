// SPDX-License-Identifier: Apache-2.0
// What is left when a runtime ends: handlers, futures, tasks, sleeps, scopes and requests.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

task<communicator> join(runtime* rt) {
  communicator world = co_await init(*rt, alone());
  co_return world;
}

// A part of a program that owns its runtime, on an io_context that the program runs itself.
struct service {
  communicator world;
  int x = 0;
  runtime rt;
  explicit service(asio::io_context& context) : rt(context) {}

  // Returns with a world.
  static std::unique_ptr<service> joined(asio::io_context& context) {
    auto made = std::make_unique<service>(context);
    asio::post(context, [s = made.get(), &context] {
      join (&s->rt)([s, &context](std::exception_ptr, communicator c) {
        s->world = std::move(c);
        context.stop();
      });
    });
    context.run_for(patience);
    context.restart();
    return made;
  }
};

// A world of one whose runtime has ended.
communicator of_ended_runtime(asio::io_context& context) {
  const std::unique_ptr<service> s = service::joined(context);
  return s->world;
}

template <class T>
bool is_broken(std::future<T>& f) {
  if (f.wait_for(0s) != std::future_status::ready) return false;
  return failure_of([&] { f.get(); }).says("roken promise");
}

}  // namespace

TEST_CASE("a runtime may be destroyed before its io_context has run its handlers") {
  asio::io_context context;
  SUBCASE("of leaving") {
    std::unique_ptr<service> s = service::joined(context);
    s->world = {};
    s.reset();
  }
  SUBCASE("of starting") {
    auto rt = std::make_unique<runtime>(context);
    asio::post(context, [] { throw std::runtime_error("mine"); });
    const auto nothing = []() -> task<> { co_return; };
    CHECK(failure_of([&] { rt->run(nothing()); }).says("mine"));
    rt.reset();
  }
  context.restart();
  context.run_for(patience);
  CHECK(context.stopped());
}

TEST_CASE("run() is not ended by what an earlier run() has left") {
  asio::io_context context;
  runtime rt(context);
  const auto stops = [](asio::io_context* c) -> task<> {
    c->stop();
    co_return;
  };
  CHECK(failure_of([&] { rt.run(stops(&context)); }).code == errc::shut_down);
  const auto returns = []() -> task<int> {
    co_await sleep_for(1ms);
    co_return 42;
  };
  CHECK(rt.run(returns()) == 42);
}

TEST_CASE("operations of a runtime that has ended fail with shut_down, however they are started") {
  std::optional<asio::io_context> context(std::in_place);
  communicator world = of_ended_runtime(*context);
  int x = 0;
  request r = world.irecv(x, 0);
  CHECK(r.done());
  CHECK(failure_of([&] { r(asio::use_future); }).code == errc::shut_down);
  failure in_awaitable;
  asio::co_spawn(
      *context,
      [](communicator w, failure* f) -> asio::awaitable<void> {
        try {
          co_await w.barrier();
        } catch (...) {
          *f = describe(std::current_exception());
        }
      }(world, &in_awaitable),
      asio::detached);
  bool ran = false;
  asio::post(world.get_executor(), [&] { ran = true; });
  context->restart();
  context->run();
  CHECK(ran);
  CHECK(in_awaitable.says(make_error_code(errc::shut_down).message()));
  context.reset();
  CHECK(failure_of([&] { world.barrier()(asio::use_future); }).code == errc::shut_down);
}

TEST_CASE("what waits when the runtime ends is destroyed") {
  asio::io_context context;
  std::unique_ptr<service> s = service::joined(context);
  std::future<void> complete, of_task;
  std::future<status> pending, of_request;
  asio::post(context, [&] {
    complete = s->world.barrier()(asio::use_future);
    pending = s->world.recv(s->x, 0, 3)(asio::use_future);
    request r = s->world.isend(s->x, 0);
    of_request = r(asio::use_future);
    const auto waits = [](communicator w) -> task<> {
      int y = 0;
      co_await w.recv(y, 0, 4);
    };
    of_task = waits(s->world)(asio::use_future);
    context.stop();
  });
  context.run_for(patience);
  s->world = {};
  s.reset();
  CHECK(is_broken(complete));
  CHECK(is_broken(pending));
  CHECK(is_broken(of_request));
  CHECK(is_broken(of_task));
}

TEST_CASE("a task of a token that computes ends before its runtime has ended") {
  bool computed = false;
  run_local(1, [&computed](communicator) {
    return [](bool* c) -> task<> {
      const auto computes = [](bool* done) -> task<> {
        co_await compute([done] {
          std::this_thread::yield();
          *done = true;
        });
      };
      computes(c)(asio::detached);
      co_return;
    }(&computed);
  });
  CHECK(computed);
}

TEST_CASE("handlers of its io_context may destroy a runtime") {
  asio::io_context context;
  std::unique_ptr<service> s = service::joined(context);
  bool ended = false;
  const auto end = [&] {
    s.reset();
    ended = true;
  };
  SUBCASE("while the loop waits for a message") {
    asio::post(context, [&] {
      s->world.recv(s->x, 0)(asio::detached);
      for (int i = 0; i < 3; ++i)
        asio::post(context, [&] {
          if (s != nullptr) end();
        });
    });
  }
  SUBCASE("at the end of an operation") {
    asio::post(context, [&] {
      s->world.recv(s->x, 0)([&](boost::system::error_code, status) { end(); });
      s->world.send(s->x, 0)(asio::detached);
    });
  }
  SUBCASE("at the end of a sleep") {
    asio::post(context, [&] {
      const auto naps = []() -> task<> { co_await sleep_for(1ms); };
      naps()([&](std::exception_ptr) { end(); });
    });
  }
  SUBCASE("in one of its tasks") {
    asio::post(context, [&] {
      const auto ends = [](std::unique_ptr<service>* all, bool* e) -> task<> {
        co_await (*all)->world.barrier();
        co_await sleep_for(1ms);
        all->reset();
        *e = true;
      };
      ends(&s, &ended)(asio::detached);
    });
  }
  context.run_for(patience);
  CHECK(context.stopped());
  CHECK(ended);
}

TEST_CASE("a sleep goes on when another runtime on the same io_context ends") {
  asio::io_context context;
  std::unique_ptr<service> first = service::joined(context);
  const std::unique_ptr<service> second = service::joined(context);
  bool slept = false;
  asio::post(context, [&] {
    const auto naps = []() -> task<> { co_await with_timeout(sleep_for(5ms), patience); };
    // Whichever loop it sleeps on, that one ends.
    for (int i = 0; i < 2; ++i)
      naps()([&](std::exception_ptr e) {
        CHECK(!e);
        slept = true;
        second->world = {};
      });
    first.reset();
  });
  context.run_for(patience);
  CHECK(context.stopped());
  CHECK(slept);
}

TEST_CASE("scopes and requests may outlive their runtime") {
  scope work;
  request left;
  static int x;
  {
    runtime rt;
    const auto leaves = [](runtime* r, scope* w, request* q) -> task<> {
      communicator world = co_await join(r);
      const auto sleeps = []() -> task<> { co_await sleep_for(1h); };
      const auto receives = [](communicator c) -> task<> {
        int y = 0;
        co_await with_timeout(c.recv(y, 0, 9), 1h);
      };
      w->spawn(sleeps());
      w->spawn(receives(world));
      *q = world.irecv(x, 0, 4);
    };
    rt.run(leaves(&rt, &work, &left));
  }
  CHECK(work.running() == 2);
  CHECK(left.done());
  runtime other;
  const failure f = other.run(failure_awaiting(&left));
  CHECK(f.code == errc::shut_down);
  CHECK(f.says("the runtime has ended"));
}

TEST_CASE("a request may outlive the thread that started it") {
  static int x;
  request left;
  std::thread([&] {
    run_local(1, [&](communicator world) {
      return [](communicator w, request* q) -> task<> {
        *q = w.irecv(x, 0);
        co_return;
      }(std::move(world), &left);
    });
  }).join();
  left = {};
}

namespace {

task<int> nap() {
  co_await sleep_for(1ms);
  co_return 1;
}

task<> replaces(std::unique_ptr<service>* s, asio::io_context* context, int* called) {
  s->reset();
  *s = std::make_unique<service>(*context);
  (*s)->world = co_await join(&(*s)->rt);
  nap()([s, called](std::exception_ptr, int value) {
    *called = value;
    s->reset();
  });
}

// A rank of two that joins at a store.
task<> joins_at(runtime* rt, store* through, int rank, failure* failed) {
  init_options o;
  o.rank = rank;
  o.world_size = 2;
  o.timeout = patience;
  *failed = co_await failure_in(init(*rt, o, *through));
}

task<> gives(channel<int>* to, int values) {
  for (int i = 0; i < values; ++i) co_await to->send(i);
}
task<> waits_at_channels(runtime* rt) {
  const communicator world = co_await join(rt);
  channel<int> values(0);
  scope work;
  work.spawn(gives(&values, 3));
  for (int i = 0; i < 3; ++i) {
    const auto value = co_await values.receive();
    TUTTI_EXPECT(value == i);
  }
}

task<> owns_its_channel(std::unique_ptr<channel<int>> values) {
  const auto value = co_await values->receive();
  TUTTI_EXPECT(!value);
}

}  // namespace

TEST_CASE("a task that replaces the runtime keeps the new one's tasks") {
  asio::io_context context;
  std::unique_ptr<service> s = service::joined(context);
  int called = 0;
  asio::post(context, [&] { replaces(&s, &context, &called)(asio::detached); });
  context.run_for(patience);
  CHECK(context.stopped());
  CHECK(called == 1);
}

TEST_CASE("an init whose runtime ends first fails with shut_down") {
  asio::io_context context;
  memory_store first(context.get_executor());
  memory_store second(context.get_executor(), first);
  auto ends = std::make_unique<runtime>(context);
  runtime stays(context);
  failure of_first, of_second;
  scope work;
  asio::post(context, [&] {
    work.spawn(joins_at(ends.get(), &first, 0, &of_first));
    asio::post(context, [&] {
      ends.reset();
      work.spawn(joins_at(&stays, &second, 1, &of_second));
    });
  });
  const auto until = std::chrono::steady_clock::now() + patience;
  do context.run_one_for(1s);
  while (work.running() > 0 && std::chrono::steady_clock::now() < until);
  CHECK(of_first.code == errc::shut_down);
}

TEST_CASE("a coroutine may run another runtime") {
  run_local(1, [](communicator) -> task<> {
    runtime rt;
    rt.run(waits_at_channels(&rt));
    co_return;
  });
}

TEST_CASE("a handler may close a channel that the last receiver owns") {
  run_local(1, [](communicator world) -> task<> {
    auto values = std::make_unique<channel<int>>(1);
    channel<int>* const closed = values.get();
    scope work;
    work.spawn(owns_its_channel(std::move(values)));
    asio::post(world.get_executor(), [closed] { closed->close(); });
    co_await work.join();
  });
}

TEST_CASE("a value that a destroyed coroutine was served goes to the next") {
  run_local(1, [](communicator) -> task<> {
    channel<int> values(1);
    {
      scope work;
      const auto receives = [](channel<int>* from) -> task<> {
        co_await from->receive();
        throw std::runtime_error("was destroyed before");
      };
      work.spawn(receives(&values));
      TUTTI_EXPECT(values.try_send(7));
    }
    TUTTI_EXPECT(values.size() == 1);
    const auto value = co_await values.receive();
    TUTTI_EXPECT(value == 7);
  });
}
