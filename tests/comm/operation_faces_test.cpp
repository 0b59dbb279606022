// SPDX-License-Identifier: Apache-2.0
// One operation in all its forms: tasks, Asio's coroutines and completion tokens, other coroutines, senders
// and receivers.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <array>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <coroutine>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <variant>
#include <vector>

using namespace tutti;
using namespace tutti::test;
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

static_assert(asio::is_async_operation<operation<>>::value);
static_assert(asio::is_async_operation<operation<status>>::value);
static_assert(std::is_same_v<asio::completion_signature_of<operation<>>::type, void(error_code)>);
static_assert(
    std::is_same_v<asio::completion_signature_of<operation<status>>::type, void(error_code, status)>);
// A temporary buffer is for co_await alone, there too.
static_assert(asio::is_async_operation<operation_on_temporary<>>::value);
static_assert(!std::is_invocable_v<operation_on_temporary<>, asio::detached_t>);
// Used once, as an rvalue: neither a task nor Asio can await an lvalue.
static_assert(!asio::is_async_operation<operation<>&>::value);
static_assert(detail::directly_awaitable<operation<>> && !detail::directly_awaitable<operation<>&>);
static_assert(!std::is_copy_constructible_v<operation<>> && !std::is_copy_assignable_v<operation<>>);
static_assert(std::is_nothrow_move_constructible_v<operation<status>>);

// Runs an Asio coroutine on the loop and waits for it.
template <class T>
task<T> in_asio(communicator world, asio::awaitable<T> body) {
  if constexpr (std::is_void_v<T>) {
    co_await asio::co_spawn(world.get_executor(), std::move(body), asio::deferred);
  } else {
    T result = co_await asio::co_spawn(world.get_executor(), std::move(body), asio::deferred);
    co_return result;
  }
}

// Runs the loop until the flag is set.
task<> reached(communicator world, const bool* flag) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!*flag) {
    TUTTI_EXPECT(std::chrono::steady_clock::now() < end);
    co_await asio::post(world.get_executor(), asio::deferred);
  }
}

int other_of(const communicator& world) { return 1 - world.rank(); }

// Both ranks: messages still arrive in both directions.
task<> still_usable(communicator world, int tag = 77) {
  const int sent = world.rank() + 100;
  int got = 0;
  request sending = world.isend(sent, other_of(world), tag);
  co_await world.recv(got, other_of(world), tag);
  co_await sending;
  TUTTI_EXPECT(got == other_of(world) + 100);
}

}  // namespace

// ---- Asio's coroutines ----

namespace {

asio::awaitable<void> awaits_directly(communicator world) {
  co_await world.barrier();
  std::array<int, 3> data{1, 2, 3};
  if (world.rank() == 0) {
    co_await world.send(data, 1, 5);
    co_await world.send(std::vector<int>(1), 1, 6);
  } else {
    int from_temporary = 1;
    co_await world.recv(from_temporary, 0, 6);
    TUTTI_EXPECT(from_temporary == 0);
    std::array<int, 5> into{};
    const status st = co_await world.recv(into, 0, 5);
    TUTTI_EXPECT(st.source == 0);
    TUTTI_EXPECT(st.tag == 5);
    TUTTI_EXPECT(st.count<int>() == 3);
    TUTTI_EXPECT(into[2] == 3);
  }
  std::vector<float> x(1000, static_cast<float>(world.rank() + 1));
  co_await world.all_reduce(x, sum);
  TUTTI_EXPECT(x[999] == 3);
  int root_value = world.rank() == 0 ? 9 : 0;
  auto named = world.broadcast(root_value, 0);
  co_await std::move(named);
  TUTTI_EXPECT(root_value == 9);
}

asio::awaitable<void> awaits_with_tokens(communicator world) {
  const int other = other_of(world);
  co_await world.barrier()(asio::use_awaitable);
  const int mine = world.rank();
  int got = -1;
  request sending = world.isend(mine, other);
  const status st = co_await world.recv(got, other)(asio::use_awaitable);
  TUTTI_EXPECT(got == other);
  TUTTI_EXPECT(st.source == other);
  const status sent = co_await sending(asio::use_awaitable);
  TUTTI_EXPECT(sent.bytes == sizeof(int));

  const auto good = co_await world.barrier()(asio::as_tuple(asio::use_awaitable));
  TUTTI_EXPECT(!std::get<0>(good));
  const auto bad = co_await world.recv(got, 99)(asio::as_tuple(asio::use_awaitable));
  TUTTI_EXPECT(std::get<0>(bad) == errc::invalid_argument);
  error_code code = asio::error::eof;
  co_await world.barrier()(asio::redirect_error(asio::use_awaitable, code));
  TUTTI_EXPECT(!code);
  co_await world.send(got, -7)(asio::redirect_error(asio::use_awaitable, code));
  TUTTI_EXPECT(code == errc::invalid_argument);

  co_await world.barrier()(asio::deferred);
  auto later = world.barrier()(asio::deferred);
  co_await std::move(later);
  const auto both = co_await world.barrier()(asio::as_tuple(asio::deferred));
  TUTTI_EXPECT(!std::get<0>(both));
}

asio::awaitable<std::string> fails_directly(communicator world) {
  std::string text;
  int got = 0;
  try {
    co_await world.recv(got, 99);
  } catch (const boost::system::system_error& e) {
    if (e.code() == errc::invalid_argument) text = e.what();
  }
  // The loop still works.
  co_await world.barrier();
  co_return text;
}

task<> awaited_by_asio(communicator world) {
  co_await in_asio(world, awaits_directly(world));
  co_await in_asio(world, awaits_with_tokens(world));
  const std::string text = co_await in_asio(world, fails_directly(world));
  TUTTI_EXPECT(text.find("invalid argument") != text.npos);
}

task<> tokens_in_a_task(communicator world) {
  co_await world.barrier()(asio::deferred);
  auto named = world.barrier()(asio::deferred);
  co_await std::move(named);
  const int mine = world.rank();
  const auto bad = co_await world.send(mine, 99)(asio::as_tuple(asio::deferred));
  TUTTI_EXPECT(std::get<0>(bad) == errc::invalid_argument);
  int got = 0;
  request sending = world.isend(mine, other_of(world));
  const status st = co_await world.recv(got, other_of(world))(asio::deferred);
  TUTTI_EXPECT(st.bytes == sizeof got);
  const status sent = co_await sending(asio::deferred);
  TUTTI_EXPECT(sent.bytes == sizeof got);
}

// Operations that complete at once, repeatedly: the stack must not grow.
asio::awaitable<void> many_immediate(communicator world) {
  int x = 0;
  for (int i = 0; i < 20'000; ++i) {
    request receiving = world.irecv(x, world.rank(), 3);
    co_await world.send(i, world.rank(), 3);
    co_await receiving(asio::use_awaitable);
    TUTTI_EXPECT(x == i);
  }
}
task<> immediate_in_asio(communicator world) { co_await in_asio(world, many_immediate(world)); }

}  // namespace

TEST_CASE("Asio's coroutines await operations, with and without a token") {
  CHECK_NOTHROW(run_local(2, over("shm"), awaited_by_asio));
  CHECK_NOTHROW(run_local(2, over("tcp"), awaited_by_asio));
}

TEST_CASE("a task awaits an operation through tokens as well") {
  CHECK_NOTHROW(run_local(2, tokens_in_a_task));
}

TEST_CASE("operations that complete at once do not grow the stack of an Asio coroutine") {
  CHECK_NOTHROW(run_local(1, immediate_in_asio));
  CHECK_NOTHROW(run_local(2, immediate_in_asio));
}

// ---- callbacks and futures ----

namespace {

task<> callbacks(communicator world) {
  const int other = other_of(world), one = 1;
  bool called = false;
  error_code code = asio::error::eof;
  world.barrier()([&](error_code e) {
    called = true;
    code = e;
  });
  TUTTI_EXPECT(!called);
  co_await reached(world, &called);
  TUTTI_EXPECT(!code);

  // Never inside the initiation, even if the operation completes or fails at once.
  for (const int dest : {other, 99}) {
    called = false;
    world.send(one, dest, 8)([&](error_code e) {
      called = true;
      code = e;
    });
    TUTTI_EXPECT(!called);
    co_await reached(world, &called);
    TUTTI_EXPECT((dest == other ? !code : code == errc::invalid_argument));
  }

  int got = 0;
  status seen;
  called = false;
  world.recv(got, other,
             8)([&, owned = std::make_unique<int>(4)](error_code e, status st) {  // a move-only handler
    called = *owned == 4;
    code = e;
    seen = st;
  });
  co_await reached(world, &called);
  TUTTI_EXPECT(!code);
  TUTTI_EXPECT(got == 1);
  TUTTI_EXPECT(seen.source == other);
  TUTTI_EXPECT(seen.tag == 8);

  // A handler may start the next operation.
  int left = 100;
  std::function<void(error_code)> again = [&](error_code) {
    if (--left > 0) world.barrier()(again);
  };
  world.barrier()(again);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (left > 0) {
    TUTTI_EXPECT(std::chrono::steady_clock::now() < end);
    co_await asio::post(world.get_executor(), asio::deferred);
  }
}

task<> futures(communicator world) {
  const int mine = world.rank() + 5;
  int got = 0;
  std::future<void> sent = world.send(mine, other_of(world))(asio::use_future);
  std::future<status> received = world.recv(got, other_of(world))(asio::use_future);
  std::future<void> wrong = world.send(mine, 99)(asio::use_future);
  const auto wait = [&] {
    sent.get();
    wrong.wait();
    return received.get().bytes == sizeof(int);
  };
  const bool well = co_await compute(wait);  // a future blocks: not on the loop
  TUTTI_EXPECT(well);
  TUTTI_EXPECT(got == other_of(world) + 5);
  error_code code;
  try {
    wrong.get();
  } catch (const boost::system::system_error& e) {
    code = e.code();
  }
  TUTTI_EXPECT(code == errc::invalid_argument);
}

// Counts its allocations and deallocations.
template <class T>
struct counting_allocator {
  using value_type = T;
  explicit counting_allocator(int* l) : live(l) {}
  template <class U>
  counting_allocator(const counting_allocator<U>& other) : live(other.live) {}
  T* allocate(std::size_t n) {
    ++*live;
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* p, std::size_t n) {
    --*live;
    std::allocator<T>().deallocate(p, n);
  }
  friend bool operator==(const counting_allocator& a, const counting_allocator& b) {
    return a.live == b.live;
  }
  int* live;
};

task<> associated(communicator world) {
  // The operation uses the handler's allocator, and frees its memory before the handler runs.
  int live = 0, live_in_handler = -1;
  bool called = false;
  world.barrier()(asio::bind_allocator(counting_allocator<char>(&live), [&](error_code) {
    live_in_handler = live;
    called = true;
  }));
  TUTTI_EXPECT(live == 1);
  co_await reached(world, &called);
  TUTTI_EXPECT(live_in_handler == 0);

  // The handler's executor runs it, and has outstanding work until then.
  asio::io_context elsewhere;
  std::thread::id ran_on;
  std::atomic<bool> ran{false};
  world.barrier()(asio::bind_executor(elsewhere, [&](error_code) {
    ran_on = std::this_thread::get_id();
    ran = true;
  }));
  std::thread::id runner_id;
  const auto run_elsewhere = [&] {
    runner_id = std::this_thread::get_id();
    elsewhere.run_for(patience);
  };
  co_await compute(run_elsewhere);
  TUTTI_EXPECT(ran);
  TUTTI_EXPECT(ran_on == runner_id);

  // The same for a request.
  int got = 0;
  request receiving = world.irecv(got, other_of(world), 4);
  elsewhere.restart();
  ran = false;
  receiving(asio::bind_executor(elsewhere, [&](error_code, status) {
    ran_on = std::this_thread::get_id();
    ran = true;
  }));
  co_await world.barrier();
  co_await world.send(1, other_of(world), 4);
  co_await compute(run_elsewhere);
  TUTTI_EXPECT(ran);
  TUTTI_EXPECT(ran_on == runner_id);
}

}  // namespace

TEST_CASE("callbacks are called once, from the loop, never inside the call that started") {
  CHECK_NOTHROW(run_local(2, callbacks));
}

TEST_CASE("futures") { CHECK_NOTHROW(run_local(2, futures)); }

TEST_CASE("a handler's allocator and executor are used") { CHECK_NOTHROW(run_local(2, associated)); }

// ---- cancellation ----

namespace {

task<> cancelled_by_slot(communicator world) {
  const int other = other_of(world);
  asio::cancellation_signal signal;
  bool called = false;
  error_code code;
  int never = 0;
  world.recv(never, other, 1)(asio::bind_cancellation_slot(signal.slot(), [&](error_code e, status) {
    called = true;
    code = e;
  }));
  co_await world.barrier();  // it is waiting now
  TUTTI_EXPECT(!called);
  signal.emit(asio::cancellation_type::terminal);
  signal.emit(asio::cancellation_type::terminal);
  TUTTI_EXPECT(!called);
  co_await reached(world, &called);
  TUTTI_EXPECT(code == asio::error::operation_aborted);
  signal.emit(asio::cancellation_type::terminal);  // late, without effect

  // A message that arrives now belongs to the next receive.
  co_await world.barrier();
  co_await still_usable(world, 1);
  TUTTI_EXPECT(never == 0);

  // A long send without a receive.
  std::vector<int> much(1 << 20, 3);
  called = false;
  co_await world.barrier();
  world.send(much, other, 2)(asio::bind_cancellation_slot(signal.slot(), [&](error_code e) {
    called = true;
    code = e;
  }));
  signal.emit(asio::cancellation_type::partial);
  co_await reached(world, &called);
  TUTTI_EXPECT(code == asio::error::operation_aborted);
  co_await world.barrier();
  co_await still_usable(world, 2);

  // A short send is cancelled or not, and its handler gets the right result.
  const int one = 1, two = 2;
  called = false;
  world.send(one, other, 3)(asio::bind_cancellation_slot(signal.slot(), [&](error_code e) {
    called = true;
    code = e;
  }));
  signal.emit(asio::cancellation_type::terminal);
  co_await reached(world, &called);
  TUTTI_EXPECT((!code || code == asio::error::operation_aborted));
  const int went = code ? 0 : 1;
  int theirs_went = 0, got = 0;
  request telling = world.isend(went, other, 4);
  co_await world.recv(theirs_went, other, 4);
  co_await telling;
  request next = world.isend(two, other, 3);
  co_await world.recv(got, other, 3);
  TUTTI_EXPECT(got == (theirs_went == 1 ? 1 : 2));
  if (theirs_went == 1) co_await world.recv(got, other, 3);
  TUTTI_EXPECT(got == 2);
  co_await next;
}

asio::awaitable<void> waits_for_ever(communicator world, bool* aborted) {
  int never = 0;
  try {
    co_await world.recv(never, other_of(world), 1);
  } catch (const boost::system::system_error& e) {
    *aborted = e.code() == asio::error::operation_aborted;
  }
}

task<> coroutine_cancelled(communicator world) {
  asio::cancellation_signal signal;
  bool aborted = false, ended = false;
  asio::co_spawn(world.get_executor(), waits_for_ever(world, &aborted),
                 asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr) { ended = true; }));
  co_await world.barrier();
  TUTTI_EXPECT(!ended);
  signal.emit(asio::cancellation_type::terminal);
  co_await reached(world, &ended);
  TUTTI_EXPECT(aborted);
  co_await world.barrier();
  co_await still_usable(world, 1);
}

task<> request_cancelled_by_slot(communicator world) {
  asio::cancellation_signal signal;
  bool called = false;
  error_code code;
  int never = 0;
  request receiving = world.irecv(never, other_of(world), 1);
  receiving(asio::bind_cancellation_slot(signal.slot(), [&](error_code e, status) {
    called = true;
    code = e;
  }));
  co_await world.barrier();
  signal.emit(asio::cancellation_type::terminal);
  co_await reached(world, &called);
  TUTTI_EXPECT(code == asio::error::operation_aborted);
  co_await world.barrier();
  co_await still_usable(world, 1);
}

task<> groups(communicator world) {
  using namespace asio::experimental;
  const int other = other_of(world);
  const int mine = world.rank() + 1;
  int a = 0, b = 0;
  request sending = world.isend(mine, other, 1);
  const auto all = co_await make_parallel_group(world.recv(a, other, 1), world.barrier())
                       .async_wait(wait_for_all(), asio::deferred);
  TUTTI_EXPECT(!std::get<1>(all));
  TUTTI_EXPECT(std::get<2>(all).tag == 1);
  TUTTI_EXPECT(!std::get<3>(all));
  TUTTI_EXPECT(a == other + 1);
  co_await sending;

  const auto one = co_await make_parallel_group(world.recv(b, other, 2), world.barrier())
                       .async_wait(wait_for_one(), asio::deferred);
  TUTTI_EXPECT(std::get<0>(one)[0] == 1);
  TUTTI_EXPECT(std::get<1>(one) == asio::error::operation_aborted);
  TUTTI_EXPECT(!std::get<3>(one));
  co_await world.barrier();
  co_await still_usable(world, 2);
  TUTTI_EXPECT(b == 0);

  // A request in a group: the loser is cancelled as well.
  request never = world.irecv(b, other, 3);
  asio::steady_timer timer(world.get_executor(), std::chrono::milliseconds(1));
  const auto first = co_await make_parallel_group(never(asio::deferred), timer.async_wait(asio::deferred))
                         .async_wait(wait_for_one(), asio::deferred);
  TUTTI_EXPECT(std::get<1>(first) == asio::error::operation_aborted);
  TUTTI_EXPECT(!std::get<3>(first));
  co_await world.barrier();
  co_await still_usable(world, 3);
  TUTTI_EXPECT(b == 0);
}

asio::awaitable<void> combines(communicator world) {
  using namespace asio::experimental::awaitable_operators;
  const int other = other_of(world);
  int got = 0;
  const int mine = world.rank() + 1;
  const status st =
      co_await (world.recv(got, other)(asio::use_awaitable) && world.send(mine, other)(asio::use_awaitable));
  TUTTI_EXPECT(got == other + 1);
  TUTTI_EXPECT(st.source == other);
  // A timeout made by hand.
  asio::steady_timer timer(world.get_executor(), std::chrono::milliseconds(1));
  int never = 0;
  const auto which =
      co_await (world.recv(never, other, 6)(asio::use_awaitable) || timer.async_wait(asio::use_awaitable));
  TUTTI_EXPECT(which.index() == 1);
}
task<> operators(communicator world) {
  co_await in_asio(world, combines(world));
  co_await world.barrier();
  co_await still_usable(world, 6);
}

task<> collective_cancelled(communicator world) {
  if (world.rank() == 0) {
    asio::cancellation_signal signal;
    bool called = false;
    error_code code;
    world.barrier()(asio::bind_cancellation_slot(signal.slot(), [&](error_code e) {
      called = true;
      code = e;
    }));
    signal.emit(asio::cancellation_type::terminal);
    co_await reached(world, &called);
    TUTTI_EXPECT(code == asio::error::operation_aborted);
  } else {
    const failure f = co_await failure_in(world.barrier());
    TUTTI_EXPECT((f.code == errc::cancelled || f.code == errc::communicator_failed));
  }
  const failure after = co_await failure_in(world.barrier());
  TUTTI_EXPECT(after.code == errc::communicator_failed);
}

}  // namespace

TEST_CASE("a cancellation slot ends an operation, and the communicator stays usable") {
  CHECK_NOTHROW(run_local(2, over("shm"), cancelled_by_slot));
  CHECK_NOTHROW(run_local(2, over("tcp"), cancelled_by_slot));
  CHECK_NOTHROW(run_local(2, coroutine_cancelled));
  CHECK_NOTHROW(run_local(2, request_cancelled_by_slot));
}

TEST_CASE("parallel groups and awaitable operators: together, and one against the other") {
  CHECK_NOTHROW(run_local(2, groups));
  CHECK_NOTHROW(run_local(2, operators));
}

TEST_CASE("a cancelled collective fails on all ranks") { CHECK_NOTHROW(run_local(2, collective_cancelled)); }

// ---- other coroutines ----

namespace {

struct detached_coroutine {
  struct promise_type {
    detached_coroutine get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};

struct report {
  bool ended = false;
  std::string trouble = "did not end";
};

task<int> adds(communicator world, int n) {
  co_await world.barrier();
  co_return n + 1;
}

detached_coroutine foreign(communicator world, report* r) {
  std::string trouble;
  try {
    co_await world.barrier();
    const int mine = world.rank();
    int got = -1;
    request sending = world.isend(mine, other_of(world));
    const status st = co_await world.recv(got, other_of(world));
    if (got != other_of(world) || st.bytes != sizeof got) trouble += "recv ";
    const status sent = co_await sending;
    if (sent.bytes != sizeof got) trouble += "request ";
    const int n = co_await adds(world, 1);
    if (n != 2) trouble += "task ";
    const auto both = co_await when_all(world.barrier(), adds(world, 5));
    if (std::get<1>(both) != 6) trouble += "when_all ";
    const int computed = co_await compute([] { return 8; });
    if (computed != 8) trouble += "compute ";
    const failure f = co_await failure_in(world.send(1, 99));
    if (f.code != errc::invalid_argument) trouble += "error ";
  } catch (const std::exception& e) {
    trouble += e.what();
  }
  r->trouble = trouble;
  r->ended = true;
}
task<> awaited_by_others(communicator world) {
  report r;
  foreign(world, &r);
  co_await reached(world, &r.ended);
  if (!r.trouble.empty()) throw std::runtime_error(r.trouble);
}

}  // namespace

TEST_CASE("any coroutine type awaits operations, requests, tasks and combinations") {
  CHECK_NOTHROW(run_local(2, awaited_by_others));
}

// ---- senders and receivers ----

namespace {

struct receiver_log {
  bool ended = false;
  std::string how;
  error_code code;
  status st;
};
struct receiver {
  receiver_log* log;
  void end(const char* how) const noexcept {
    log->how = how;
    log->ended = true;
  }
  void set_value() && noexcept { end("value"); }
  void set_value(status st) && noexcept {
    log->st = st;
    end("value");
  }
  void set_error(error_code e) && noexcept {
    log->code = e;
    end("error");
  }
  void set_stopped() && noexcept { end("stopped"); }
};

task<> connected(communicator world) {
  const int other = other_of(world);
  receiver_log log;
  {
    auto state = world.barrier().connect(receiver{&log});
    TUTTI_EXPECT(!log.ended);
    state.start();
    co_await reached(world, &log.ended);
    TUTTI_EXPECT(log.how == "value");
  }
  log = {};
  {
    const int six = 6;
    int got = 0;
    request sending = world.isend(six, other, 2);
    auto state = world.recv(got, other, 2).connect(receiver{&log});
    state.start();
    co_await reached(world, &log.ended);
    TUTTI_EXPECT(log.how == "value");
    TUTTI_EXPECT(log.st.tag == 2);
    TUTTI_EXPECT(got == 6);
    co_await sending;
  }
  log = {};
  {
    const int unsent = 1;
    auto state = world.send(unsent, 99).connect(receiver{&log});
    state.start();
    TUTTI_EXPECT(log.how == "error");
    TUTTI_EXPECT(log.code == errc::invalid_argument);
  }
  log = {};
  {
    // Never started, or started and dropped: the receiver is not called, and the buffer is free at once.
    auto unstarted = world.barrier().connect(receiver{&log});
    auto buffer = std::make_unique<int>(0);
    {
      auto dropped = world.recv(*buffer, other, 3).connect(receiver{&log});
      dropped.start();
    }
    buffer.reset();
    co_await world.barrier();
    TUTTI_EXPECT(!log.ended);
    co_await still_usable(world, 3);
  }
}

task<> stopped(communicator world) {
  receiver_log log;
  if (world.rank() == 0) {
    auto state = world.barrier().connect(receiver{&log});
    state.start();
    {
      request dropped = start(world.barrier());
    }  // fails the communicator with `cancelled`
    co_await reached(world, &log.ended);
    TUTTI_EXPECT(log.how == "stopped");
  } else {
    co_await failure_in(world.barrier());
  }
}

}  // namespace

TEST_CASE("a sender's receiver gets value, error or stop exactly once") {
  CHECK_NOTHROW(run_local(2, connected));
  CHECK_NOTHROW(run_local(2, stopped));
}

// ---- lazy ----

namespace {

task<> unused(communicator world) {
  int got = 0;
  {
    auto a = world.barrier();
    auto b = world.recv(got, other_of(world));
    auto c = std::move(b);
    auto d = world.send(1, 99);  // invalid, but never started
  }
  co_await world.barrier();
  co_await still_usable(world);
  const int mine = world.rank();
  auto first = world.isend(mine, other_of(world), 1);
  auto op = world.recv(got, other_of(world), 1);
  auto moved = std::move(op);
  co_await std::move(moved);
  TUTTI_EXPECT(got == other_of(world));
  co_await first;
}

}  // namespace

TEST_CASE("an operation does nothing until it is used, and may be moved until then") {
  CHECK_NOTHROW(run_local(2, unused));
}

// ---- other threads ----

namespace {

detached_coroutine awaits_elsewhere(communicator world, failure* f) {
  std::exception_ptr caught;
  try {
    co_await world.barrier();
  } catch (...) {
    caught = std::current_exception();
  }
  *f = describe(caught);
}

asio::awaitable<void> awaits_elsewhere_in_asio(communicator world, error_code* code, bool* same_thread) {
  const std::thread::id before = std::this_thread::get_id();
  try {
    co_await world.barrier();
  } catch (const boost::system::system_error& e) {
    *code = e.code();
  }
  *same_thread = std::this_thread::get_id() == before;
}

task<> from_another_thread(communicator world) {
  failure started, lazy;
  error_code by_future, by_asio;
  bool same_thread = false;
  receiver_log log;
  int buffer = 0;
  const auto elsewhere = [&] {
    started = failure_of([&] { request never = world.irecv(buffer, other_of(world)); });
    awaits_elsewhere(world, &lazy);
    by_future = world.barrier()(asio::use_future([](error_code e) { return e; })).get();
    asio::io_context context;
    asio::co_spawn(context, awaits_elsewhere_in_asio(world, &by_asio, &same_thread), asio::detached);
    context.run_for(patience);
    auto state = world.barrier().connect(receiver{&log});
    state.start();
  };
  for (int i = 0; i < 20; ++i) {
    co_await compute(elsewhere);
    TUTTI_EXPECT(started.code == errc::wrong_thread);
    TUTTI_EXPECT(started.says("world"));
    TUTTI_EXPECT(started.says("get_executor()"));
    TUTTI_EXPECT(lazy.code == errc::wrong_thread);
    TUTTI_EXPECT(lazy.says("barrier on world"));
    TUTTI_EXPECT(lazy.says("get_executor()"));
    TUTTI_EXPECT(by_future == errc::wrong_thread);
    TUTTI_EXPECT(by_asio == errc::wrong_thread);
    TUTTI_EXPECT(same_thread);
    TUTTI_EXPECT(log.code == errc::wrong_thread);
  }
  co_await still_usable(world);
}

// The way in from any thread: co_spawn on the communicator's executor.
asio::awaitable<int> reduces(communicator world) {
  int x = world.rank() + 1;
  co_await world.all_reduce(x, sum);
  co_return x;
}
// Returns 0 if there is no result.
int reduced_from_elsewhere(const communicator& world) {
  std::future<int> x = asio::co_spawn(world.get_executor(), reduces(world), asio::use_future);
  return x.wait_for(patience) == std::future_status::ready ? x.get() : 0;
}
task<> through_the_executor(communicator world) {
  int right = 0;
  bool ended = false;
  // Not on the compute pool, which may have only one thread for both ranks.
  std::thread elsewhere([&] {
    for (int i = 0; i < 50 && right == i; ++i) right += reduced_from_elsewhere(world) == 3 ? 1 : 0;
    asio::post(world.get_executor(), [&] { ended = true; });
  });
  const failure waiting = co_await failure_in(reached(world, &ended));
  elsewhere.join();
  TUTTI_EXPECT(!waiting.code);
  TUTTI_EXPECT(right == 50);
}

}  // namespace

TEST_CASE("use from another thread is an error in every form, without side effects") {
  CHECK_NOTHROW(run_local(2, from_another_thread));
}

TEST_CASE("the executor is the way in from another thread") {
  CHECK_NOTHROW(run_local(2, through_the_executor));
}

// ---- an empty communicator ----

namespace {

asio::awaitable<error_code> awaits_nobody() {
  const communicator nobody;
  error_code code;
  try {
    co_await nobody.barrier();
  } catch (const boost::system::system_error& e) {
    code = e.code();
  }
  co_return code;
}

task<> of_nobody(communicator world) {
  const communicator nobody;
  TUTTI_EXPECT(!nobody);
  const failure lazy = co_await failure_in(nobody.barrier());
  TUTTI_EXPECT(lazy.code == errc::invalid_argument);
  int x = 0;
  request eager = nobody.irecv(x, 0);
  const failure awaited = co_await failure_awaiting(&eager);
  TUTTI_EXPECT(awaited.code == errc::invalid_argument);
  const error_code in_coroutine = co_await in_asio(world, awaits_nobody());
  TUTTI_EXPECT(in_coroutine == errc::invalid_argument);
  // There is no loop that could call the handler.
  bool called = false;
  const failure by_token = failure_of([&] { nobody.barrier()([&](error_code) { called = true; }); });
  TUTTI_EXPECT(by_token.code == errc::invalid_argument);
  request another = nobody.irecv(x, 0);
  const failure request_by_token = failure_of([&] { another([&](error_code, status) { called = true; }); });
  TUTTI_EXPECT(request_by_token.code == errc::invalid_argument);
  TUTTI_EXPECT(!another);
  co_await asio::post(world.get_executor(), asio::deferred);
  TUTTI_EXPECT(!called);
}

}  // namespace

TEST_CASE("an empty communicator is an error in every form") { CHECK_NOTHROW(run_local(1, of_nobody)); }

// Pending handlers of several kinds, each with an object that lives as long as the handler.
task<> leave_handlers(communicator world, std::vector<std::weak_ptr<int>>* alive, int* called) {
  static float in[4];
  const auto handler = [alive, called] {
    auto held = std::make_shared<int>(1);
    alive->push_back(held);
    return [held, called](error_code, auto&&...) { ++*called; };
  };
  world.recv(in[0], 0)(handler());
  request receiving = world.irecv(in[1], 0);
  receiving(handler());
  auto held = std::make_shared<int>(1);
  alive->push_back(held);
  asio::co_spawn(
      world.get_executor(),
      [](communicator w, std::shared_ptr<int>, int* resumed) -> asio::awaitable<void> {
        co_await w.recv(in[2], 0);
        ++*resumed;
      }(world, std::exchange(held, nullptr), called),
      asio::detached);
  co_await sleep_for(std::chrono::milliseconds(1));  // the coroutine waits now
  for (const auto& a : *alive) TUTTI_EXPECT(!a.expired());
}

TEST_CASE("pending handlers are destroyed without a call when the runtime ends") {
  std::vector<std::weak_ptr<int>> alive;
  int called = 0;
  CHECK_NOTHROW(
      run_local(1, [&](communicator world) { return leave_handlers(std::move(world), &alive, &called); }));
  CHECK(alive.size() == 3);
  for (const auto& a : alive) CHECK(a.expired());
  CHECK(called == 0);
}
