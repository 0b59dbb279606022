// SPDX-License-Identifier: Apache-2.0
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <boost/asio/deferred.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <coroutine>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

using namespace tutti;
using namespace tutti::test;
namespace asio = boost::asio;

namespace {

int other_of(const communicator& world) { return 1 - world.rank(); }

void ignore_end(void*, std::exception_ptr) noexcept {}

// Suspends its awaiters until the test opens it.
struct gate {
  std::coroutine_handle<> waiting;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) noexcept { waiting = h; }
  void await_resume() const noexcept {}
  void open() { detail::resume_bounded(std::exchange(waiting, {})); }
};

struct scene {
  std::vector<std::string> log;
  std::array<gate, 3> gates;
  void note(std::string what) { log.push_back(std::move(what)); }
};

template <class T>
T run(task<T> body) {
  asio::io_context context;
  return run_task(context, std::move(body));
}

task<int> value(int n) { co_return n; }
task<> nothing() { co_return; }
task<std::unique_ptr<int>> owner(int n) { co_return std::make_unique<int>(n); }
task<int> fails(std::string why) {
  throw std::runtime_error(why);
  co_return 0;
}

}  // namespace

// ---- without communication ----

namespace {

task<> gives_results() {
  auto all = co_await when_all(value(1), nothing(), owner(3));
  static_assert(std::is_same_v<decltype(all), std::tuple<int, std::monostate, std::unique_ptr<int>>>);
  TUTTI_EXPECT(std::get<0>(all) == 1);
  TUTTI_EXPECT(*std::get<2>(all) == 3);

  const auto one = co_await when_all(value(9));
  TUTTI_EXPECT(std::get<0>(one) == 9);
  const auto nested = co_await when_all(when_all(value(1), value(2)), value(3));
  TUTTI_EXPECT(std::get<1>(std::get<0>(nested)) == 2);
  TUTTI_EXPECT(std::get<1>(nested) == 3);

  auto by_name = value(5);
  const auto moved = co_await when_all(std::move(by_name), value(6));
  TUTTI_EXPECT(std::get<0>(moved) == 5);
  const auto many =
      co_await when_all(value(0), value(1), value(2), value(3), value(4), value(5), value(6), value(7),
                        value(8), value(9), value(10), value(11), value(12), value(13), value(14), value(15));
  TUTTI_EXPECT(std::get<15>(many) == 15);
}

task<int> sums_many(int n) {
  int total = 0;
  for (int i = 0; i < n; ++i) {
    const auto both = co_await when_all(value(1), value(2));
    total += std::get<0>(both) + std::get<1>(both);
  }
  co_return total;
}
task<int> deep(int n) {
  if (n == 0) co_return 0;
  const auto both = co_await when_all(deep(n - 1), value(1));
  co_return std::get<0>(both) + std::get<1>(both);
}

}  // namespace

TEST_CASE("the result is a tuple of the results, in the order given") { CHECK_NOTHROW(run(gives_results())); }

TEST_CASE("many joins, in sequence and nested, do not grow the stack") {
  CHECK(run(sums_many(100'000)) == 300'000);
  CHECK(run(deep(20'000)) == 20'000);
}

namespace {

task<int> passes(scene* s, std::size_t which) {
  s->note("start " + std::to_string(which));
  co_await s->gates[which];
  s->note("end " + std::to_string(which));
  co_return static_cast<int>(which);
}
task<int> passes_and_fails(scene* s, std::size_t which) {
  const int n = co_await passes(s, which);
  throw std::runtime_error("failed " + std::to_string(n));
}
task<> joins(scene* s) {
  const auto all = co_await when_all(passes(s, 0), passes(s, 1), passes(s, 2));
  s->note("joined " + std::to_string(std::get<0>(all) + std::get<1>(all) + std::get<2>(all)));
}
task<> joins_failures(scene* s) {
  try {
    co_await when_all(passes_and_fails(s, 0), passes(s, 1), passes_and_fails(s, 2));
  } catch (const std::runtime_error& e) {
    s->note(e.what());
  }
}
task<> joins_with_failure_at_once(scene* s) {
  try {
    co_await when_all(fails("at once"), passes(s, 1), fails("as well"));
  } catch (const std::runtime_error& e) {
    s->note(e.what());
  }
}

using lines = std::vector<std::string>;

}  // namespace

TEST_CASE("all are started in order, and the last one to end completes the join") {
  for (const std::array<std::size_t, 3> order : {std::array<std::size_t, 3>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    scene s;
    core::running_task t;
    t.start(joins(&s), &ignore_end, nullptr);
    lines expected{"start 0", "start 1", "start 2"};
    CHECK(s.log == expected);
    for (const std::size_t which : order) {
      CHECK(t.running());
      s.gates[which].open();
      expected.push_back("end " + std::to_string(which));
    }
    expected.push_back("joined 3");
    CHECK(s.log == expected);
    CHECK_FALSE(t.running());
  }
}

TEST_CASE("the first failure in order is thrown, after all have ended") {
  scene s;
  core::running_task t;
  t.start(joins_failures(&s), &ignore_end, nullptr);
  s.gates[2].open();
  s.gates[0].open();
  CHECK(s.log == lines{"start 0", "start 1", "start 2", "end 2", "end 0"});
  s.gates[1].open();
  CHECK(s.log.back() == "failed 0");

  scene u;
  t.start(joins_with_failure_at_once(&u), &ignore_end, nullptr);
  CHECK(u.log == lines{"start 1"});
  u.gates[1].open();
  CHECK(u.log == lines{"start 1", "end 1", "at once"});
}

TEST_CASE("dropping the awaiting task drops all its operations, finished and pending ones") {
  scene s;
  core::running_task t;
  t.start(joins(&s), &ignore_end, nullptr);
  s.gates[1].open();
  t.stop();
  CHECK(s.log == lines{"start 0", "start 1", "start 2", "end 1"});

  // Constructed and never awaited.
  scene never;
  {
    const auto unused = when_all(passes(&never, 0), passes(&never, 1));
  }
  CHECK(never.log.empty());
}

namespace {

task<int> awaits_asio(asio::io_context* context) {
  asio::steady_timer soon(*context, std::chrono::milliseconds(1)),
      late(*context, std::chrono::milliseconds(3));
  const auto all =
      co_await when_all(soon.async_wait(asio::deferred), late.async_wait(asio::deferred), value(4));
  co_return std::get<2>(all);
}

}  // namespace

TEST_CASE("Asio's operations can be joined as well") {
  asio::io_context context;
  CHECK(run_task(context, awaits_asio(&context)) == 4);
}

// ---- with communication ----

namespace {

task<int> exchange(communicator world, int tag) {
  const int other = other_of(world);
  int got = 0;
  request sending = world.isend(tag, other, tag);
  co_await world.recv(got, other, tag);
  co_await sending;
  co_return got;
}

task<> everything_together(communicator world) {
  const int other = other_of(world);
  std::vector<float> a(1000, static_cast<float>(world.rank() + 1)), b(50, 2.0F);
  const int mine = world.rank() + 5, after = world.rank();
  int in = 0, late = 0;
  request receiving = world.irecv(in, other, 1);
  request sending = world.isend(mine, other, 1);
  asio::steady_timer timer(world.get_executor(), std::chrono::milliseconds(1));
  const auto all =
      co_await when_all(world.all_reduce(a, sum), world.barrier(), receiving, sending, exchange(world, 7),
                        world.recv(late, other, 2), world.send(after, other, 2), world.all_reduce(b, sum),
                        timer.async_wait(asio::deferred), compute([] { return 11; }));
  static_assert(std::is_same_v<std::decay_t<decltype(all)>,
                               std::tuple<std::monostate, std::monostate, status, status, int, status,
                                          std::monostate, std::monostate, std::monostate, int>>);
  TUTTI_EXPECT(a[999] == 3);
  TUTTI_EXPECT(b[49] == 4);
  TUTTI_EXPECT(in == other + 5);
  TUTTI_EXPECT(std::get<2>(all).source == other);
  TUTTI_EXPECT(std::get<3>(all).bytes == sizeof in);
  TUTTI_EXPECT(std::get<4>(all) == 7);
  TUTTI_EXPECT(std::get<5>(all).tag == 2);
  TUTTI_EXPECT(std::get<9>(all) == 11);
  TUTTI_EXPECT(!receiving);  // awaited
}

task<> many_times(communicator world) {
  int x = 0, y = 0;
  for (int i = 0; i < 300; ++i) {
    const auto both =
        co_await when_all(world.recv(x, other_of(world), 1), world.send(i, other_of(world), 1),
                          world.recv(y, other_of(world), 2), world.send(-i, other_of(world), 2));
    TUTTI_EXPECT(std::get<0>(both).tag == 1);
    TUTTI_EXPECT(x == i);
    TUTTI_EXPECT(y == -i);
  }
}

task<> one_fails(communicator world) {
  const int other = other_of(world);
  int in = 0, never = 0;
  request cancelled = world.irecv(never, other, 9);
  cancelled.cancel();
  failure first;
  try {
    co_await when_all(world.recv(in, other, 1), cancelled, world.send(3, 99),
                      world.send(world.rank() + 1, other, 1));
  } catch (...) {
    first = describe(std::current_exception());
  }
  TUTTI_EXPECT(first.code == errc::cancelled);
  TUTTI_EXPECT(in == other + 1);  // the others ran to their end
  const int mine = world.rank();
  co_await when_all(world.recv(in, other, 1), world.send(mine, other, 1));
  TUTTI_EXPECT(in == other);
}

task<> receives_two(communicator world, std::vector<int>* a, std::vector<int>* b) {
  co_await when_all(world.recv(*a, other_of(world), 1), world.recv(*b, other_of(world), 2));
}
task<> dropped(communicator world) {
  const int other = other_of(world);
  auto a = std::make_unique<std::vector<int>>(1000, 5);
  auto b = std::make_unique<std::vector<int>>(100'000, 5);
  {
    core::running_task t;
    t.start(receives_two(world, a.get(), b.get()), &ignore_end, nullptr);
    co_await world.barrier();
    TUTTI_EXPECT(t.running());
  }
  const std::vector<int> untouched_a = *a, untouched_b = *b;
  co_await world.barrier();
  const std::vector<int> out(100'000, 6);
  request first = world.isend(std::span(out).first(1000), other, 1);
  request second = world.isend(out, other, 2);
  co_await world.barrier();
  TUTTI_EXPECT(*a == untouched_a);
  TUTTI_EXPECT(*b == untouched_b);
  const auto all = co_await when_all(world.recv(*a, other, 1), world.recv(*b, other, 2), first, second);
  TUTTI_EXPECT(std::get<1>(all).count<int>() == 100'000);
  TUTTI_EXPECT((*a)[999] == 6);
  TUTTI_EXPECT((*b)[99'999] == 6);
}

}  // namespace

TEST_CASE("operations, requests, tasks, timers and computations are joined") {
  CHECK_NOTHROW(run_local(2, over("shm"), everything_together));
  CHECK_NOTHROW(run_local(2, over("tcp"), everything_together));
  CHECK_NOTHROW(run_local(2, many_times));
}

TEST_CASE("a failure does not keep the others from completing") { CHECK_NOTHROW(run_local(2, one_fails)); }

TEST_CASE("dropping a join frees all buffers and loses no message") {
  CHECK_NOTHROW(run_local(2, over("shm"), dropped));
  CHECK_NOTHROW(run_local(2, over("tcp"), dropped));
}

// ---- ranges of requests ----

namespace {

task<> awaits_ranges(communicator world) {
  constexpr int count = 40;
  std::vector<int> out(count), in(count, -1);
  for (int i = 0; i < count; ++i) out[static_cast<std::size_t>(i)] = 100 * world.rank() + i;
  std::vector<request> all(2 * count + 1);  // one stays empty
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    all[at] = world.irecv(in[at], other_of(world), i);
    all[at + count] = world.isend(out[at], other_of(world), i);
  }
  std::vector<status> results(all.size());
  co_await when_all(all, results);
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    TUTTI_EXPECT(in[at] == 100 * other_of(world) + i);
    TUTTI_EXPECT(results[at].source == other_of(world));
    TUTTI_EXPECT(results[at].tag == i);
    TUTTI_EXPECT(results[at].bytes == sizeof(int));
  }
  for (const request& r : all) TUTTI_EXPECT(!r);

  co_await when_all(all);  // empty ones only
  std::array<request, 0> none;
  co_await when_all(none);
  request two[2] = {world.irecv(in[0], other_of(world)), world.isend(out[0], other_of(world))};
  co_await when_all(std::span(two));
  TUTTI_EXPECT(in[0] == out[0] + 100 * (other_of(world) - world.rank()));

  std::vector<basic_request<communicator>> made(2);
  made[0] = start(world.duplicate());
  made[1] = start(world.split(world.rank(), 0));
  std::array<communicator, 2> halves;
  co_await when_all(made, halves);
  TUTTI_EXPECT(halves[0].size() == 2);
  TUTTI_EXPECT(halves[1].size() == 1);
}

task<> range_with_failures(communicator world) {
  std::array<int, 3> in{};
  std::array<request, 3> all;
  if (world.rank() == 0) {
    all[0] = world.irecv(in[0], 1, 1);
    all[1] = world.irecv(std::span(in.data() + 1, 1), 1, 2);  // too short for its message
    all[2] = world.irecv(in[2], 1, 3);
    all[2].cancel();
    errc why = errc::success;
    try {
      co_await when_all(all);
    } catch (const error& e) {
      why = static_cast<errc>(e.code().value());
    }
    TUTTI_EXPECT(why == errc::truncated);
    TUTTI_EXPECT(in[0] == 7);  // all have ended, and those that succeeded have their message
    for (const request& r : all) TUTTI_EXPECT(!r);
  } else {
    const std::array<int, 2> two{1, 2};
    co_await world.send(two, 0, 2);
    co_await world.send(7, 0, 1);
  }
  co_await world.barrier();
}

task<> waits_for(request* one) { co_await *one; }

task<> waits_for_all(communicator world, std::array<request, 2>* all) {
  const failure why = co_await failure_in(when_all(*all));
  TUTTI_EXPECT(why.code == errc::invalid_argument);
  co_await world.send(1, 1);
}

task<> range_that_ends_early(communicator world) {
  std::array<int, 2> in{};
  if (world.rank() == 0) {
    std::array<request, 2> all{world.irecv(in[0], 1, 1), world.irecv(in[1], 1, 2)};
    const failure late = co_await failure_in(with_timeout(when_all(all), std::chrono::milliseconds(1)));
    TUTTI_EXPECT(late.code == errc::timed_out);
    for (const request& r : all) TUTTI_EXPECT(!r);

    all[0] = world.irecv(in[0], 1, 1);
    all[1] = world.irecv(in[1], 1, 2);
    co_await when_all(waits_for(&all[1]), waits_for_all(world, &all));
    co_await when_all(all);
    TUTTI_EXPECT((in == std::array<int, 2>{5, 6}));
  } else {
    int go = 0;
    co_await world.recv(go, 0);
    co_await world.send(5, 0, 1);
    co_await world.send(6, 0, 2);
  }
}

task<> joins(std::array<request, 2>* all) { co_await when_all(*all); }

task<> abandoned_range(communicator world) {
  std::array<int, 2> in{};
  std::array<request, 2> all{world.irecv(in[0], other_of(world), 1), world.irecv(in[1], other_of(world), 2)};
  {
    core::running_task t;
    t.start(joins(&all), &ignore_end, nullptr);
    co_await world.barrier();
    TUTTI_EXPECT(t.running());
  }
  co_await world.barrier();
  co_await world.send(8, other_of(world), 1);
  co_await world.send(9, other_of(world), 2);
  co_await when_all(all);
  TUTTI_EXPECT((in == std::array<int, 2>{8, 9}));
}

}  // namespace

TEST_CASE("a range of requests is awaited at once") {
  for (const std::string& transport : transports) {
    CHECK_NOTHROW(run_local(2, over(transport), awaits_ranges));
    CHECK_NOTHROW(run_local(2, over(transport), range_with_failures));
    CHECK_NOTHROW(run_local(2, over(transport), range_that_ends_early));
    CHECK_NOTHROW(run_local(2, over(transport), abandoned_range));
  }
}
