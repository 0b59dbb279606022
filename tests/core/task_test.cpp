// SPDX-License-Identifier: Apache-2.0
#include "core/running_task.hpp"

#include "support/run_task.hpp"

#include <doctest/doctest.h>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
namespace asio = boost::asio;

// Sanitizers enlarge frames, and their own data for each.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int very_many = 100'000;
#else
constexpr int very_many = 1'000'000;
#endif

namespace {

static_assert(!std::is_copy_constructible_v<task<>> && !std::is_default_constructible_v<task<>>);
static_assert(std::is_nothrow_move_constructible_v<task<int>> &&
              std::is_nothrow_move_assignable_v<task<int>>);
static_assert(detail::directly_awaitable<task<>> && !detail::directly_awaitable<task<>&>);

// Suspends its awaiters until the test opens it.
struct gate {
  std::coroutine_handle<> waiting;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) noexcept { waiting = h; }
  int await_resume() const noexcept { return 42; }
  void open() { detail::resume_bounded(std::exchange(waiting, {})); }
};

struct marker {
  marker(int n, std::vector<int>* l) : name(n), log(l) {}
  marker(const marker&) = delete;
  ~marker() { log->push_back(name); }
  int name;
  std::vector<int>* log;
};

void ignore_end(void*, std::exception_ptr) noexcept {}

template <class T>
T run(task<T> body) {
  asio::io_context context;
  return test::run_task(context, std::move(body));
}

// ---- values ----

task<int> seven() { co_return 7; }
task<std::string> text() { co_return "words"; }  // converts
task<std::unique_ptr<int>> owner() { co_return std::make_unique<int>(3); }
struct no_default {
  explicit no_default(int n) : value(n) {}
  int value;
};
task<no_default> made() { co_return no_default(9); }
task<std::optional<int>> maybe(bool yes) {
  if (yes) co_return 4;
  co_return std::nullopt;
}
task<> collect(int* sum) {
  const int a = co_await seven();
  const std::string b = co_await text();
  std::unique_ptr<int> c = co_await owner();
  const no_default d = co_await made();
  const std::optional<int> e = co_await maybe(true);
  const std::optional<int> f = co_await maybe(false);
  *sum = a + static_cast<int>(b.size()) + *c + d.value + *e + f.value_or(1000);
}

}  // namespace

TEST_CASE("a task returns its value to its awaiter") {
  CHECK(run(seven()) == 7);
  CHECK(*run(owner()) == 3);
  int total = 0;
  run(collect(&total));
  CHECK(total == 7 + 5 + 3 + 9 + 4 + 1000);
}

namespace {

task<int> throws() {
  throw std::out_of_range("here");
  co_return 1;
}
task<int> passes_on() {
  const int never = co_await throws();
  co_return never;
}
task<std::string> catches() {
  std::string seen;
  try {
    co_await passes_on();
  } catch (const std::out_of_range& e) {
    seen = e.what();
  }
  const int after = co_await seven();
  co_return seen + std::to_string(after);
}
task<int> throws_after(gate* g) {
  co_await *g;
  throw std::out_of_range("late");
}
task<> awaits_throws_after(gate* g, std::string* seen) {
  try {
    co_await throws_after(g);
  } catch (const std::out_of_range& e) {
    *seen = e.what();
  }
}

}  // namespace

TEST_CASE("an exception propagates to the awaiter, through tasks that do not catch it") {
  CHECK_THROWS_AS(run(throws()), std::out_of_range);
  CHECK(run(catches()) == "here7");
  gate g;
  std::string seen;
  core::running_task t;
  t.start(awaits_throws_after(&g, &seen), &ignore_end, nullptr);
  CHECK(seen.empty());
  g.open();
  CHECK(seen == "late");
}

namespace {

task<std::string> awaits_twice() {
  task<int> once = seven();
  const int first = co_await std::move(once);
  std::string seen = std::to_string(first);
  try {
    co_await std::move(once);  // NOLINT(bugprone-use-after-move)
  } catch (const error& e) {
    if (e.code() == errc::invalid_argument) seen += e.what();
  }
  co_return seen;
}

}  // namespace

TEST_CASE("a task that is awaited twice is an error") {
  CHECK(run(awaits_twice()) == "7a task was awaited twice, or was moved from");
}

// ---- lifetime ----

namespace {

task<> starts(bool* started) {
  *started = true;
  co_return;
}
task<> nested(gate* g, int level, std::vector<int>* log) {
  const marker first(level, log), second(level + 10, log);
  if (level == 0) {
    co_await *g;
  } else {
    co_await nested(g, level - 1, log);
  }
}

}  // namespace

TEST_CASE("a task is lazy: dropped before its await it never runs") {
  bool started = false;
  {
    const task<> dropped = starts(&started);
  }
  CHECK_FALSE(started);
  run(starts(&started));
  CHECK(started);
}

TEST_CASE("arguments of a task that never ran are destroyed with it, once") {
  const auto shared = std::make_shared<int>(1);
  const auto holds = [](std::shared_ptr<int>) -> task<> { co_return; };
  {
    task<> t = holds(shared);
    CHECK(shared.use_count() == 2);
    t = starts(nullptr);
    CHECK(shared.use_count() == 1);
    task<> moved = std::move(t);
  }
  CHECK(shared.use_count() == 1);
}

TEST_CASE("destroying a suspended task destroys its contents, innermost first") {
  gate g;
  std::vector<int> log;
  {
    core::running_task t;
    t.start(nested(&g, 2, &log), &ignore_end, nullptr);
    CHECK(log.empty());
  }
  CHECK(log == std::vector<int>{10, 0, 11, 1, 12, 2});
}

namespace {

task<> awaits_named(task<>* t) { co_await std::move(*t); }

}  // namespace

TEST_CASE("a task that is awaited ends with the coroutine that awaits it, whoever has the object") {
  gate g;
  std::vector<int> log;
  task<> outlives = nested(&g, 1, &log);
  {
    core::running_task t;
    t.start(awaits_named(&outlives), &ignore_end, nullptr);
    CHECK(log.empty());
  }
  CHECK(log == std::vector<int>{10, 0, 11, 1});

  log.clear();
  std::optional<task<>> goes_first(nested(&g, 1, &log));
  core::running_task t;
  t.start(awaits_named(&*goes_first), &ignore_end, nullptr);
  goes_first.reset();
  CHECK(log.empty());
  g.open();
  CHECK_FALSE(t.running());
  CHECK(log == std::vector<int>{10, 0, 11, 1});
}

// ---- length and depth ----

namespace {

task<int> one() { co_return 1; }
task<std::int64_t> sequence(int n) {
  std::int64_t sum = 0;
  for (int i = 0; i < n; ++i) sum += co_await one();
  co_return sum;
}
task<std::int64_t> depth(int n) {
  if (n == 0) co_return 0;
  const std::int64_t below = co_await depth(n - 1);
  co_return below + 1;
}
task<std::int64_t> depth_to_gate(int n, gate* g) {
  if (n == 0) {
    const int value = co_await *g;
    co_return value;
  }
  const std::int64_t below = co_await depth_to_gate(n - 1, g);
  co_return below + 1;
}
task<> keep(task<std::int64_t> body, std::int64_t* result) { *result = co_await std::move(body); }
task<std::int64_t> depth_that_throws(int n) {
  if (n == 0) throw std::out_of_range("bottom");
  const std::int64_t below = co_await depth_that_throws(n - 1);
  co_return below + 1;
}
// A tree: every node awaits children on both sides of the limit of nesting.
task<std::int64_t> tree(int levels) {
  if (levels == 0) co_return 1;
  const std::int64_t left = co_await tree(levels - 1);
  const std::int64_t right = co_await tree(levels - 1);
  co_return left + right;
}
task<std::int64_t> long_branches(int n) {
  std::int64_t sum = 0;
  for (int i = 0; i < n; ++i) sum += co_await depth(i);
  co_return sum;
}

}  // namespace

TEST_CASE("a million awaits in sequence, or nested, do not overflow the stack") {
  CHECK(run(sequence(very_many)) == very_many);
  CHECK(run(depth(very_many)) == very_many);
}

TEST_CASE("a deep chain that suspended at its bottom returns to the top") {
  gate g;
  std::int64_t result = 0;
  core::running_task t;
  t.start(keep(depth_to_gate(very_many, &g), &result), &ignore_end, nullptr);
  CHECK(t.running());
  CHECK(result == 0);
  g.open();
  CHECK(result == very_many + 42);
}

TEST_CASE("an exception propagates through a deep chain") {
  CHECK_THROWS_AS(run(depth_that_throws(10'000)), std::out_of_range);
}

TEST_CASE("a deep suspended chain can be dropped") {
  gate g;
  std::int64_t result = 0;
  core::running_task t;
  t.start(keep(depth_to_gate(10'000, &g), &result), &ignore_end, nullptr);
  t.stop();
  CHECK(result == 0);
}

TEST_CASE("chains of every length, in sequence, in one task") {
  CHECK(run(tree(12)) == 4096);
  CHECK(run(long_branches(300)) == 300 * 299 / 2);
}

// ---- Asio's operations ----

namespace {

using local_stream = asio::local::stream_protocol;

task<int> waits_for_timer(asio::any_io_executor executor) {
  const auto begin = std::chrono::steady_clock::now();  // before the timer's own time begins
  asio::steady_timer timer(executor, 2ms);
  co_await timer.async_wait(asio::deferred);
  if (std::chrono::steady_clock::now() - begin < 2ms) co_return -1;
  auto again = timer.async_wait(asio::deferred);  // expired already
  co_await std::move(again);
  co_return 1;
}

task<> writes(local_stream::socket* to, std::string words) {
  const std::size_t written = co_await asio::async_write(*to, asio::buffer(words), asio::deferred);
  if (written != words.size()) throw std::runtime_error("wrote too little");
}
task<std::string> echoes(local_stream::socket* a, local_stream::socket* b) {
  co_await writes(a, "through a socket");
  std::array<char, 16> bytes{};
  const std::size_t n = co_await asio::async_read(*b, asio::buffer(bytes), asio::deferred);
  co_return std::string(bytes.data(), n);
}

}  // namespace

TEST_CASE("timers and sockets are awaited in place") {
  asio::io_context context;
  CHECK(test::run_task(context, waits_for_timer(context.get_executor())) == 1);
  local_stream::socket a(context), b(context);
  asio::local::connect_pair(a, b);
  CHECK(test::run_task(context, echoes(&a, &b)) == "through a socket");
}

namespace {

task<boost::system::error_code> reads_past_the_end(local_stream::socket* from, std::size_t* before) {
  std::array<char, 16> bytes{};
  boost::system::error_code seen;
  try {
    co_await asio::async_read(*from, asio::buffer(bytes), asio::deferred);
  } catch (const boost::system::system_error& e) {
    seen = e.code();
  }
  // The same without exceptions.
  auto result = co_await asio::async_read(*from, asio::buffer(bytes), asio::as_tuple(asio::deferred));
  if (std::get<0>(result) != seen) throw std::runtime_error("another error");
  *before = std::get<1>(result);
  co_return seen;
}
task<boost::system::error_code> waits_cancelled(asio::steady_timer* timer) {
  boost::system::error_code seen;
  try {
    co_await timer->async_wait(asio::deferred);
  } catch (const boost::system::system_error& e) {
    seen = e.code();
  }
  co_return seen;
}

}  // namespace

TEST_CASE("errors of Asio's operations are thrown as Asio's system_error") {
  asio::io_context context;
  local_stream::socket a(context), b(context);
  asio::local::connect_pair(a, b);
  a.close();
  std::size_t before = 99;
  CHECK(test::run_task(context, reads_past_the_end(&b, &before)) == asio::error::eof);
  CHECK(before == 0);
  asio::steady_timer timer(context, 10min);
  asio::post(context, [&] { timer.cancel(); });
  CHECK(test::run_task(context, waits_cancelled(&timer)) == asio::error::operation_aborted);
}

namespace {

// Calls its handler inside the initiation. Asio's own operations do not, but others may.
template <class Signature, class Token, class... Values>
auto at_once(Token&& token, Values... values) {
  return asio::async_initiate<Token, Signature>(
      [](auto handler, auto... v) { std::move(handler)(std::move(v)...); }, token, std::move(values)...);
}
// Keeps the handler until it is called or dropped.
template <class Token>
auto kept(std::function<void(boost::system::error_code, int)>* where, Token&& token) {
  return asio::async_initiate<Token, void(boost::system::error_code, int)>(
      [](auto handler, auto* place) {
        const auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        *place = [shared](boost::system::error_code e, int n) { std::move (*shared)(e, n); };
      },
      token, where);
}
template <class Token>
auto refuses(Token&& token) {
  return asio::async_initiate<Token, void(boost::system::error_code)>(
      [](auto) { throw std::logic_error("cannot even begin"); }, token);
}

task<std::string> every_signature() {
  using boost::system::error_code;
  co_await at_once<void()>(asio::deferred);
  co_await at_once<void(error_code)>(asio::deferred, error_code());
  const int one_value = co_await at_once<void(int)>(asio::deferred, 3);
  std::unique_ptr<int> moved = co_await at_once<void(error_code, std::unique_ptr<int>)>(
      asio::deferred, error_code(), std::make_unique<int>(4));
  const std::tuple<int, std::string> two = co_await at_once<void(error_code, int, std::string)>(
      asio::deferred, error_code(), 5, std::string("six"));
  std::string thrown;
  try {
    co_await at_once<void(std::exception_ptr, int)>(asio::deferred,
                                                    std::make_exception_ptr(std::out_of_range("seven")), 0);
  } catch (const std::out_of_range& e) {
    thrown = e.what();
  }
  std::string refused;
  try {
    co_await refuses(asio::deferred);
  } catch (const std::logic_error& e) {
    refused = e.what();
  }
  co_return std::to_string(one_value) + std::to_string(*moved) + std::to_string(std::get<0>(two)) +
      std::get<1>(two) + thrown + refused;
}
task<int> many_at_once(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i)
    sum += co_await at_once<void(boost::system::error_code, int)>(asio::deferred, boost::system::error_code(),
                                                                  1);
  co_return sum;
}

}  // namespace

TEST_CASE("repeated operations of any signature may complete inside their initiation") {
  CHECK(run(every_signature()) == "345sixsevencannot even begin");
  CHECK(run(many_at_once(very_many)) == very_many);
}

namespace {

task<> awaits_kept(std::function<void(boost::system::error_code, int)>* where, int* result) {
  *result = co_await kept(where, asio::deferred);
}
task<> awaits_timer(asio::steady_timer* timer, bool* reached) {
  co_await timer->async_wait(asio::deferred);
  *reached = true;
}
task<> reads_into_frame(local_stream::socket* from, bool* reached) {
  std::array<char, 64> bytes{};
  co_await from->async_wait(local_stream::socket::wait_read, asio::deferred);
  *reached = from->read_some(asio::buffer(bytes)) > 0;
}

}  // namespace

TEST_CASE("a task dropped while an Asio operation is pending is not touched when that completes") {
  bool reached = false;
  {
    asio::io_context context;
    asio::steady_timer timer(context, 1ms);
    {
      core::running_task t;
      t.start(awaits_timer(&timer, &reached), &ignore_end, nullptr);
    }
    context.run();  // the operation completes after its awaiter was destroyed
    context.restart();
    local_stream::socket a(context), b(context);
    asio::local::connect_pair(a, b);
    core::running_task t;
    t.start(reads_into_frame(&b, &reached), &ignore_end, nullptr);
    t.stop();
    a.write_some(asio::buffer("x", 1));
    b.cancel();
    context.run();
  }
  CHECK_FALSE(reached);

  std::function<void(boost::system::error_code, int)> finish;
  int result = 0;
  core::running_task t;
  t.start(awaits_kept(&finish, &result), &ignore_end, nullptr);
  t.stop();
  finish({}, 7);
  CHECK(result == 0);
}

TEST_CASE("if the operation drops its handler, the task stays suspended and can be dropped") {
  std::function<void(boost::system::error_code, int)> finish;
  int result = 0;
  core::running_task t;
  t.start(awaits_kept(&finish, &result), &ignore_end, nullptr);
  finish = nullptr;
  CHECK(t.running());
  t.stop();
  t.start(awaits_kept(&finish, &result), &ignore_end, nullptr);
  finish({}, 8);
  CHECK(result == 8);
  CHECK_FALSE(t.running());

  // The io_context is destroyed before the task.
  bool reached = false;
  core::running_task outlives;
  {
    asio::io_context context;
    asio::steady_timer timer(context, 10min);
    outlives.start(awaits_timer(&timer, &reached), &ignore_end, nullptr);
    context.poll();
  }
  CHECK_FALSE(reached);
}

// ---- awaiters of the user's own ----

namespace {

// Neither copied nor moved: either would make another object.
struct pinned {
  pinned(int n, std::coroutine_handle<>* w) : value(n), where(w) {}
  pinned(const pinned&) = delete;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) noexcept { *where = h; }
  int& await_resume() noexcept { return value; }
  int value;
  std::coroutine_handle<>* where;
};
struct copied {
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  const copied* await_resume() const noexcept { return this; }
};
task<int> awaits_own(pinned* p) {
  int& by_name = co_await *p;
  by_name += 1;
  const int in_place = co_await pinned(30, p->where);
  const int again = co_await *p;
  const copied named;
  const copied* seen = co_await named;
  if (seen != &named) co_return -1;
  co_return in_place + again;
}
task<> keep_int(task<int> body, int* result) { *result = co_await std::move(body); }

}  // namespace

TEST_CASE("an awaiter is awaited in place, named or temporary") {
  std::coroutine_handle<> waiting;
  pinned p(100, &waiting);
  int result = 0;
  core::running_task t;
  t.start(keep_int(awaits_own(&p), &result), &ignore_end, nullptr);
  for (int i = 0; i < 3; ++i) detail::resume_bounded(waiting);
  CHECK(p.value == 101);
  CHECK(result == 131);
  CHECK_FALSE(t.running());
}

// ---- other coroutine types ----

namespace {

// The simplest coroutine: eager and detached.
struct detached {
  struct promise_type {
    detached get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};

detached awaits_task(gate* g, int* result, std::string* failure) {
  *result = co_await seven();
  *result += static_cast<int>(co_await depth_to_gate(200, g));
  try {
    co_await throws();
  } catch (const std::out_of_range& e) {
    *failure = e.what();
  }
}

task<int> awaits_asio_coroutine(asio::io_context* context) {
  const auto body = [](int n) -> asio::awaitable<int> {
    asio::steady_timer timer(co_await asio::this_coro::executor, 1ms);
    co_await timer.async_wait(asio::use_awaitable);
    co_return n + 1;
  };
  const int value = co_await asio::co_spawn(*context, body(1), asio::deferred);
  co_return value;
}

}  // namespace

TEST_CASE("another coroutine type awaits a task") {
  gate g;
  int result = 0;
  std::string failure;
  awaits_task(&g, &result, &failure);
  CHECK(result == 7);
  g.open();
  CHECK(result == 7 + 242);
  CHECK(failure == "here");
}

TEST_CASE("a task awaits an Asio coroutine") {
  asio::io_context context;
  CHECK(test::run_task(context, awaits_asio_coroutine(&context)) == 2);
}
