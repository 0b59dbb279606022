// SPDX-License-Identifier: Apache-2.0
// The life of a request: awaited, awaited again, cancelled, dropped, moved, given a completion token.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

using namespace tutti;
using namespace tutti::test;
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

static_assert(!std::is_copy_constructible_v<request> && !std::is_copy_assignable_v<request>);
static_assert(std::is_nothrow_move_constructible_v<request> && std::is_nothrow_move_assignable_v<request>);
static_assert(std::is_nothrow_default_constructible_v<request>);
static_assert(detail::directly_awaitable<request&> && !detail::directly_awaitable<request>);

int other_of(const communicator& world) { return 1 - world.rank(); }

constexpr std::uint64_t poison = 0xdeadbeefdeadbeef;

// One frame, parts, rendezvous, and many pieces.
constexpr std::size_t lengths[] = {1, 16, 4096, 1 << 16, 1 << 17};
using words = std::vector<std::uint64_t>;

// Both ranks are here, and all messages sent before have arrived.
task<> meet(communicator world) {
  const int other = other_of(world);
  int token = 0;
  request sending = world.isend(token, other, 1000);
  co_await world.recv(token, other, 1000);
  co_await sending;
}

// Runs the loop until this number of operations has ended or been called.
task<> reached(communicator world, const int* ended, int number) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (*ended < number) {
    TUTTI_EXPECT(std::chrono::steady_clock::now() < end);
    co_await asio::post(world.get_executor(), asio::deferred);
  }
}

}  // namespace

// ---- awaiting ----

namespace {

task<> awaited_once(communicator world) {
  const int other = other_of(world);
  for (const std::size_t n : lengths) {
    const words out(n, n);
    words in(n, 0);
    request sending = world.isend(out, other, 3);
    request receiving = world.irecv(in, other, 3);
    TUTTI_EXPECT(sending);
    TUTTI_EXPECT(receiving);
    const status received = co_await receiving;
    TUTTI_EXPECT(received.source == other);
    TUTTI_EXPECT(received.tag == 3);
    TUTTI_EXPECT(received.count<std::uint64_t>() == n);
    const status sent = co_await sending;
    TUTTI_EXPECT(sent.source == world.rank());
    TUTTI_EXPECT(sent.tag == 3);
    TUTTI_EXPECT(sent.count<std::uint64_t>() == n);
    TUTTI_EXPECT(in == out);

    // Its result has been delivered.
    TUTTI_EXPECT(!receiving);
    TUTTI_EXPECT(receiving.done());
    const failure again = co_await failure_awaiting(&receiving);
    TUTTI_EXPECT(again.code == errc::invalid_argument);
    TUTTI_EXPECT(again.says("awaited twice"));
    receiving.cancel();  // no effect
  }
  request empty;
  TUTTI_EXPECT(!empty);
  TUTTI_EXPECT(empty.done());
  empty.cancel();
  const failure nothing = co_await failure_awaiting(&empty);
  TUTTI_EXPECT(nothing.code == errc::invalid_argument);
}

task<> errors_come_from_the_await(communicator world) {
  int x = 0;
  request wrong = world.isend(x, 99);
  TUTTI_EXPECT(wrong);
  TUTTI_EXPECT(wrong.done());
  const failure f = co_await failure_awaiting(&wrong);
  TUTTI_EXPECT(f.code == errc::invalid_argument);
  TUTTI_EXPECT(!wrong);
  const failure again = co_await failure_awaiting(&wrong);
  TUTTI_EXPECT(again.code == errc::invalid_argument);
  TUTTI_EXPECT(again.says("awaited twice"));
  {
    request never_asked = world.isend(x, 99);
  }
}

task<> waits_on(request* r, int* ended, failure* how) {
  *how = co_await failure_awaiting(r);
  ++*ended;
}

task<> awaited_by_two(communicator world) {
  int x = 0;
  request receiving = world.irecv(x, other_of(world), 1);
  int ended = 0;
  failure first, second;
  core::running_task a, b;
  const auto ignore = [](void*, std::exception_ptr) noexcept {};
  a.start(waits_on(&receiving, &ended, &first), ignore, nullptr);
  b.start(waits_on(&receiving, &ended, &second), ignore, nullptr);
  TUTTI_EXPECT(ended == 1);
  TUTTI_EXPECT(second.code == errc::invalid_argument);
  const int sent = 4;
  co_await world.send(sent, other_of(world), 1);
  co_await reached(world, &ended, 2);
  TUTTI_EXPECT(!first.code);
  TUTTI_EXPECT(x == 4);
}

// The awaiting coroutine is destroyed, the request stays.
task<> awaited_by_one_that_is_dropped(communicator world) {
  int x = 0;
  request receiving = world.irecv(x, other_of(world), 1);
  int ended = 0;
  failure how;
  {
    core::running_task t;
    t.start(waits_on(&receiving, &ended, &how));
    TUTTI_EXPECT(t.running());
  }
  const int sent = 4;
  co_await world.send(sent, other_of(world), 1);
  co_await receiving;
  TUTTI_EXPECT(ended == 0);
  TUTTI_EXPECT(x == 4);
}

}  // namespace

TEST_CASE("a request is awaited once; a second await is an error that says so") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(2, over(transport), awaited_once));
  }
}

TEST_CASE("a request that could not start says why when it is awaited") {
  CHECK_NOTHROW(run_local(2, errors_come_from_the_await));
}

TEST_CASE("if two coroutines await one request, the second gets an error") {
  CHECK_NOTHROW(run_local(2, awaited_by_two));
}

TEST_CASE("a request outlives the coroutine that awaits it") {
  CHECK_NOTHROW(run_local(2, awaited_by_one_that_is_dropped));
}

// ---- done ----

namespace {

task<> done_without_an_await(communicator world) {
  const int other = other_of(world);
  int in = 0;
  request receiving = world.irecv(in, other, 1);
  if (world.rank() == 0) {
    TUTTI_EXPECT(!receiving.done());
    co_await meet(world);
  } else {
    co_await meet(world);
    co_await world.send(5, other, 1);
  }
  if (world.rank() == 0) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!receiving.done()) {
      TUTTI_EXPECT(std::chrono::steady_clock::now() < end);
      co_await asio::post(world.get_executor(), asio::deferred);
    }
    TUTTI_EXPECT(receiving);  // not yet awaited
    const status st = co_await receiving;
    TUTTI_EXPECT(st.bytes == sizeof in);
    TUTTI_EXPECT(in == 5);
    co_await world.send(6, other, 1);
  } else {
    co_await receiving;
    TUTTI_EXPECT(in == 6);
  }
}

}  // namespace

TEST_CASE("a request completes whether or not it is awaited") {
  CHECK_NOTHROW(run_local(2, done_without_an_await));
}

// ---- dropping and cancelling ----

namespace {

task<> dropped_receive_loses_nothing(communicator world) {
  const int other = other_of(world);
  for (const std::size_t n : lengths) {
    const words out(n, n + static_cast<std::size_t>(world.rank()));
    words dropped(n, poison);
    {
      request never = world.irecv(dropped, other, 1);
    }
    {
      request any = world.irecv(dropped, any_source, 1);
    }
    co_await meet(world);
    request sending = world.isend(out, other, 1);
    words in(n, 0);
    co_await world.recv(in, other, 1);
    co_await sending;
    TUTTI_EXPECT(in == words(n, n + static_cast<std::size_t>(other)));
    TUTTI_EXPECT(dropped == words(n, poison));
  }
}

// Dropped at any time during the transfer: the buffer may be reused or freed at once.
task<> dropped_while_it_comes(communicator world) {
  const int other = other_of(world);
  random_numbers random(17 + static_cast<std::uint64_t>(world.rank()));
  for (int round = 0; round < 100; ++round) {
    const words out(1 << 17, 9);
    request sending =
        world.isend(std::span(out).first(lengths[static_cast<std::size_t>(round) % 4]), other, round);
    auto buffer = std::make_unique<words>(1 << 17, 1);
    {
      request receiving = world.irecv(*buffer, other, round);
      for (std::size_t turns = random.below(4); turns > 0; --turns)
        co_await asio::post(world.get_executor(), asio::deferred);
    }
    std::fill(buffer->begin(), buffer->end(), poison);
    co_await meet(world);
    TUTTI_EXPECT(std::count(buffer->begin(), buffer->end(), poison) == 1 << 17);
    buffer.reset();
    // Cancelled or refused: it must end in either case.
    sending = request();
    co_await meet(world);
  }
}

task<> dropped_send(communicator world) {
  const int other = other_of(world);
  for (const std::size_t n : lengths) {
    auto out = std::make_unique<words>(n, 5);
    {
      request dropped = world.isend(*out, other, 1);
    }
    std::fill(out->begin(), out->end(), poison);
    out.reset();
    co_await meet(world);
    // It arrived whole (it had been sent), or not at all: the next message tells.
    co_await world.send(words(1, 6), other, 1);
    words in(n, 0);
    status st = co_await world.recv(in, other, 1);
    if (in[0] == 5) {
      TUTTI_EXPECT(in == words(n, 5));
      st = co_await world.recv(in, other, 1);
    }
    TUTTI_EXPECT(st.count<std::uint64_t>() == 1);
    TUTTI_EXPECT(in[0] == 6);
    co_await meet(world);
  }
}

task<> cancelled(communicator world) {
  const int other = other_of(world);
  int in = 7;
  request receiving = world.irecv(in, other, 1);
  receiving.cancel();
  receiving.cancel();
  const failure f = co_await failure_awaiting(&receiving);
  TUTTI_EXPECT(f.code == errc::cancelled);
  TUTTI_EXPECT(f.code == std::errc::operation_canceled);
  TUTTI_EXPECT(f.says("recv"));
  co_await meet(world);

  // While a coroutine awaits it.
  request awaited = world.irecv(in, other, 1);
  int ended = 0;
  failure how;
  core::running_task t;
  t.start(waits_on(&awaited, &ended, &how));
  awaited.cancel();
  TUTTI_EXPECT(ended == 0);  // the loop delivers the completion
  co_await reached(world, &ended, 1);
  TUTTI_EXPECT(how.code == errc::cancelled);
  co_await meet(world);

  // Too late: a message that has arrived wins.
  request in_time = world.irecv(in, other, 1);
  co_await world.send(8, other, 1);
  co_await meet(world);
  TUTTI_EXPECT(in_time.done());
  in_time.cancel();
  const status st = co_await in_time;
  TUTTI_EXPECT(st.bytes == sizeof in);
  TUTTI_EXPECT(in == 8);

  // A long send without a receive.
  const words out(1 << 20, 1);
  request sending = world.isend(out, other, 2);
  sending.cancel();
  const failure g = co_await failure_awaiting(&sending);
  TUTTI_EXPECT(g.code == errc::cancelled);
  co_await meet(world);
}

}  // namespace

TEST_CASE("dropping a receive without a message loses none and does not touch the buffer") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(2, over(transport), dropped_receive_loses_nothing));
  }
}

TEST_CASE("dropping during the transfer: the buffer is free when the destructor returns") {
  CHECK_NOTHROW(run_local(2, over("shm"), dropped_while_it_comes));
}

TEST_CASE("dropping a send: the message arrives whole or not at all") {
  CHECK_NOTHROW(run_local(2, over("shm"), dropped_send));
}

TEST_CASE("cancel() ends a request once, unless its result came first") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(2, over(transport), cancelled));
  }
}

// ---- moving ----

namespace {

request make(communicator world, int& x) { return world.irecv(x, other_of(world), 1); }

task<> moved(communicator world) {
  const int other = other_of(world);
  int x = 0, y = 0, z = 0;
  request a = make(world, x);
  request b = std::move(a);
  TUTTI_EXPECT(!a);
  TUTTI_EXPECT(b);
  a = std::move(b);
  request& same = a;
  a = std::move(same);
  TUTTI_EXPECT(a);
  std::vector<request> many;
  many.push_back(std::move(a));
  for (int i = 0; i < 100; ++i) many.push_back(world.irecv(y, other, 2));  // moved as the vector grows
  many.resize(1);                                                          // drops the rest
  request replaced = world.irecv(z, other, 3);
  replaced = world.irecv(y, other, 4);  // cancels the one for z
  co_await meet(world);
  for (int tag = 1; tag <= 4; ++tag) co_await world.send(tag, other, tag);
  co_await many[0];
  co_await replaced;
  TUTTI_EXPECT(x == 1);
  TUTTI_EXPECT(y == 4);
  TUTTI_EXPECT(z == 0);
  co_await world.recv(z, other, 3);
  TUTTI_EXPECT(z == 3);
  co_await world.recv(z, other, 2);
  TUTTI_EXPECT(z == 2);
}

task<> many_in_flight(communicator world) {
  const int other = other_of(world);
  constexpr std::size_t many = 3000;  // more than one block of slots
  std::vector<std::size_t> in(many, 0), out(many);
  std::vector<request> requests;
  for (std::size_t i = 0; i < many; ++i) requests.push_back(world.irecv(in[i], other, static_cast<int>(i)));
  for (std::size_t i = many; i-- > 0;) {
    out[i] = i * 7;
    co_await world.send(out[i], other, static_cast<int>(i));
  }
  for (std::size_t i = 0; i < many; i += 2) co_await requests[i];
  for (std::size_t i = 1; i < many; i += 2) co_await requests[i];
  TUTTI_EXPECT(in == out);
}

}  // namespace

TEST_CASE("requests can be moved; a replaced request is cancelled") { CHECK_NOTHROW(run_local(2, moved)); }

TEST_CASE("thousands of requests are in flight at once") { CHECK_NOTHROW(run_local(2, many_in_flight)); }

// ---- start() ----

namespace {

task<> started_operations(communicator world) {
  std::vector<float> x(100, static_cast<float>(world.rank() + 1));
  const int mine = world.rank();
  int root = mine == 1 ? 6 : 0;
  int got = 0;
  request reducing = start(world.all_reduce(x, sum));
  request barrier = start(world.barrier());
  request telling = start(world.broadcast(root, 1));
  request receiving = start(world.recv(got, other_of(world)));
  request sending = start(world.send(mine, other_of(world)));
  co_await sending;
  const status st = co_await receiving;
  TUTTI_EXPECT(st.source == other_of(world));
  co_await telling;
  co_await reducing;
  co_await barrier;
  TUTTI_EXPECT(x[99] == 3);
  TUTTI_EXPECT(root == 6);
  TUTTI_EXPECT(got == other_of(world));
}

}  // namespace

TEST_CASE("any operation can be started now and awaited later, in any order") {
  CHECK_NOTHROW(run_local(2, started_operations));
}

namespace {

task<> started_groups(communicator world) {
  const std::vector<int> first = {0};
  auto splitting = start(world.split(0, -world.rank()));
  auto grouping = start(world.group(first));
  auto dropped = start(world.duplicate());
  auto by_token = start(world.duplicate());
  const communicator reversed = co_await splitting;
  TUTTI_EXPECT(!splitting);
  TUTTI_EXPECT(reversed.size() == 2);
  TUTTI_EXPECT(reversed.rank() == 1 - world.rank());
  const communicator one = co_await grouping;
  TUTTI_EXPECT(static_cast<bool>(one) == (world.rank() == 0));
  const communicator same = co_await by_token(boost::asio::deferred);
  int ranks = 1;
  co_await same.all_reduce(ranks, sum);
  co_await reversed.all_reduce(ranks, sum);
  TUTTI_EXPECT(ranks == 4);
  while (!dropped.done()) co_await sleep_for(std::chrono::seconds(0));
}

}  // namespace

TEST_CASE("start() of an operation that makes a communicator gives the communicator") {
  CHECK_NOTHROW(run_local(2, started_groups));
}

// ---- completion tokens ----

namespace {

asio::awaitable<std::size_t> in_a_coroutine(request r) {
  const status st = co_await r(asio::use_awaitable);
  co_return st.bytes;
}

task<> with_tokens(communicator world) {
  const int other = other_of(world);
  int x = 0;
  int called = 0;
  error_code code;
  status st;
  const auto handler = [&](error_code e, status s) {
    ++called;
    code = e;
    st = s;
  };
  // Pending, complete, and failed at once: the handler never runs inside the call.
  for (const bool late : {true, false}) {
    called = 0;
    request receiving = world.irecv(x, other, 1);
    if (!late) {
      co_await world.send(3, other, 1);
      co_await meet(world);
      TUTTI_EXPECT(receiving.done());
    }
    receiving(handler);
    TUTTI_EXPECT(called == 0);
    TUTTI_EXPECT(!receiving);  // the handler gets its result now
    if (late) {
      co_await meet(world);
      co_await world.send(3, other, 1);
    }
    co_await reached(world, &called, 1);
    TUTTI_EXPECT(!code);
    TUTTI_EXPECT(st.source == other);
    const failure again = co_await failure_awaiting(&receiving);
    TUTTI_EXPECT(again.code == errc::invalid_argument);
  }
  called = 0;
  request wrong = world.isend(x, 99);
  wrong(handler);
  TUTTI_EXPECT(called == 0);
  co_await reached(world, &called, 1);
  TUTTI_EXPECT(code == errc::invalid_argument);

  request sending = world.isend(x, other, 2);
  request receiving = world.irecv(x, other, 2);
  const status in_task = co_await receiving(asio::deferred);
  TUTTI_EXPECT(in_task.tag == 2);
  const auto tuple = co_await sending(asio::as_tuple(asio::deferred));
  TUTTI_EXPECT(!std::get<0>(tuple));

  request first = world.irecv(x, other, 2);
  co_await world.send(1, other, 2);
  const std::size_t bytes =
      co_await asio::co_spawn(world.get_executor(), in_a_coroutine(std::move(first)), asio::deferred);
  TUTTI_EXPECT(bytes == sizeof x);

  request second = world.irecv(x, other, 2);
  std::future<status> future = second(asio::use_future);
  co_await world.send(1, other, 2);
  const auto get = [&] { return future.get().bytes; };
  const std::size_t by_future = co_await compute(get);
  TUTTI_EXPECT(by_future == sizeof x);
}

// A token may start the operation later, or never.
task<> token_that_never_begins(communicator world) {
  const int other = other_of(world);
  auto buffer = std::make_unique<int>(0);
  {
    request receiving = world.irecv(*buffer, other, 1);
    [[maybe_unused]] auto later = receiving(asio::deferred);
    TUTTI_EXPECT(!receiving);
  }
  {
    request receiving = world.irecv(*buffer, other, 1);
    auto later = receiving(asio::use_awaitable);
  }
  buffer.reset();  // both are destroyed, and neither loses a message
  co_await meet(world);
  co_await world.send(5, other, 1);
  int x = 0;
  co_await world.recv(x, other, 1);
  TUTTI_EXPECT(x == 5);

  request receiving = world.irecv(x, other, 1);
  auto later = receiving(asio::deferred);
  co_await world.send(6, other, 1);
  co_await meet(world);
  const status st = co_await std::move(later);
  TUTTI_EXPECT(st.bytes == sizeof x);
  TUTTI_EXPECT(x == 6);

  const failure empty = failure_of([&] { receiving([](error_code, status) {}); });
  TUTTI_EXPECT(empty.code == errc::invalid_argument);
}

}  // namespace

TEST_CASE("a request in any state accepts a completion token") { CHECK_NOTHROW(run_local(2, with_tokens)); }

TEST_CASE("a request with a token that never starts it is dropped") {
  CHECK_NOTHROW(run_local(2, token_that_never_begins));
}
