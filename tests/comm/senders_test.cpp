// SPDX-License-Identifier: Apache-2.0
// Operations as senders of P2300: by the rules of the draft, and by stdexec if it is installed.
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <exception>
#include <string>
#include <tutti/tutti.hpp>
#include <type_traits>
#include <utility>

#if __has_include(<stdexec/execution.hpp>)
#include <stdexec/execution.hpp>
#endif

using namespace tutti;
using namespace tutti::test;

namespace {

// The parts of [exec] that decide whether an awaitable is a sender, its completions, and how it is connected.
namespace p2300 {

struct sender_t {};
struct receiver_t {};
struct operation_state_t {};
struct env {};

// env-promise: the promise of a coroutine that awaits with this environment.
template <class Env>
struct env_promise {
  template <class V>
  V&& await_transform(V&& v) noexcept {
    return static_cast<V&&>(v);
  }
  Env get_env() const noexcept;
};

template <class A, class Promise>
concept awaiter = requires(A& a, std::coroutine_handle<Promise> h) {
  a.await_ready() ? 1 : 0;
  { a.await_suspend(h) } -> std::same_as<bool>;
  a.await_resume();
};
template <class C>
using awaiter_of = decltype(std::declval<C>().operator co_await());
template <class C, class Promise>
concept awaitable = requires { typename awaiter_of<C>; } && awaiter<awaiter_of<C>, Promise>;

template <class S>
concept is_sender = std::derived_from<typename S::sender_concept, sender_t>;
template <class S>
concept sender =
    (is_sender<std::remove_cvref_t<S>> || awaitable<std::remove_cvref_t<S>, env_promise<env>>) &&
    std::move_constructible<std::remove_cvref_t<S>> && std::constructible_from<std::remove_cvref_t<S>, S>;

// Arguments of set_value; the others are set_error(std::exception_ptr) and set_stopped().
template <class S>
  requires(!requires { typename S::completion_signatures; } && awaitable<S, env_promise<env>>)
using value_of = decltype(std::declval<awaiter_of<S>>().await_resume());

template <class S, class R>
concept with_member = requires(S&& s, R&& r) { static_cast<S&&>(s).connect(static_cast<R&&>(r)); };

// connect-awaitable: a coroutine that completes the receiver after it has been suspended.
template <class R>
struct state_of_awaitable {
  using operation_state_concept = operation_state_t;
  struct promise_type {
    template <class S>
    promise_type(S&, R& r) noexcept : receiver(r) {}
    state_of_awaitable get_return_object() noexcept {
      return state_of_awaitable{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { std::terminate(); }
    void unhandled_exception() const noexcept { std::terminate(); }
    void return_void() const noexcept { std::terminate(); }
    template <class Tell>
    struct telling {
      Tell tell;
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<>) const noexcept { tell(); }
      void await_resume() const noexcept {}
    };
    template <class Tell>
    telling<Tell> yield_value(Tell tell) noexcept {
      return {std::move(tell)};
    }
    R& receiver;
  };
  explicit state_of_awaitable(std::coroutine_handle<promise_type> h) noexcept : frame(h) {}
  state_of_awaitable(state_of_awaitable&& other) noexcept : frame(std::exchange(other.frame, {})) {}
  ~state_of_awaitable() {
    if (frame) frame.destroy();
  }
  void start() & noexcept { frame.resume(); }
  std::coroutine_handle<promise_type> frame;
};

template <class S, class R>
state_of_awaitable<R> connect_awaitable(S operation, R receiver) {
  std::exception_ptr failure;
  try {
    if constexpr (std::is_void_v<value_of<S>>) {
      co_await std::move(operation);
      co_yield [&receiver]() noexcept { std::move(receiver).set_value(); };
    } else {
      auto value = co_await std::move(operation);
      co_yield [&receiver, &value]() noexcept { std::move(receiver).set_value(std::move(value)); };
    }
  } catch (...) {
    failure = std::current_exception();
  }
  co_yield [&receiver, &failure]() noexcept { std::move(receiver).set_error(std::move(failure)); };
}

template <class S, class R>
auto connect(S s, R r) {
  if constexpr (with_member<S, R>) {
    return std::move(s).connect(std::move(r));
  } else {
    return connect_awaitable(std::move(s), std::move(r));
  }
}

template <class O>
concept operation_state =
    std::derived_from<typename O::operation_state_concept, operation_state_t> && requires(O& o) {
      { o.start() } noexcept;
    };

}  // namespace p2300

struct heard {
  bool ended = false;
  std::string what;
  status st;
};

template <class Concept>
struct receiver_of {
  using receiver_concept = Concept;
  heard* to;
  void end(std::string what) const noexcept {
    to->what = std::move(what);
    to->ended = true;
  }
  void set_value() && noexcept { end("value"); }
  void set_value(status st) && noexcept {
    to->st = st;
    end("value");
  }
  void set_error(std::exception_ptr failure) && noexcept {
    try {
      std::rethrow_exception(std::move(failure));
    } catch (const error& e) {
      end(e.what());
    }
  }
  void set_stopped() && noexcept { end("stopped"); }
};

struct by_the_draft {
  using receiver = receiver_of<p2300::receiver_t>;
  template <class S>
  static auto connect(S s, receiver r) {
    auto state = p2300::connect(std::move(s), r);
    static_assert(p2300::operation_state<decltype(state)>);
    return state;
  }
  template <class O>
  static void start(O& o) {
    o.start();
  }
};

static_assert(p2300::sender<operation<>>);
static_assert(p2300::sender<operation<status>>);
static_assert(p2300::sender<operation<communicator>>);
static_assert(std::is_void_v<p2300::value_of<operation<>>>);
static_assert(std::same_as<p2300::value_of<operation<status>>, status>);
static_assert(std::same_as<p2300::value_of<operation<communicator>>, communicator>);

task<> until(communicator world, const bool* flag) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!*flag) {
    TUTTI_EXPECT(std::chrono::steady_clock::now() < end);
    co_await boost::asio::post(world.get_executor(), boost::asio::deferred);
  }
}

template <class Library>
task<> value_and_error(communicator world) {
  using receiver = typename Library::receiver;
  const int other = 1 - world.rank();
  const int six = 6;
  int got = 0;
  heard sent, received, refused;
  auto sending = Library::connect(world.send(six, other, 2), receiver{&sent});
  auto receiving = Library::connect(world.recv(got, other, 2), receiver{&received});
  auto refusing = Library::connect(world.send(six, 99), receiver{&refused});
  TUTTI_EXPECT(!sent.ended && !received.ended);
  Library::start(sending);
  Library::start(receiving);
  Library::start(refusing);
  co_await until(world, &sent.ended);
  co_await until(world, &received.ended);
  TUTTI_EXPECT(sent.what == "value");
  TUTTI_EXPECT(received.what == "value");
  TUTTI_EXPECT(received.st.tag == 2);
  TUTTI_EXPECT(got == 6);
  TUTTI_EXPECT(refused.ended);
  TUTTI_EXPECT(refused.what.find("99") != std::string::npos);
}

}  // namespace

TEST_CASE("senders: by the rules of the draft an operation is a sender and completes with value or error") {
  CHECK_NOTHROW(run_local(2, value_and_error<by_the_draft>));
}

#if __has_include(<stdexec/execution.hpp>)
namespace {
struct by_stdexec {
  using receiver = receiver_of<stdexec::receiver_t>;
  template <class S>
  static auto connect(S s, receiver r) {
    return stdexec::connect(std::move(s), r);
  }
  template <class O>
  static void start(O& o) {
    stdexec::start(o);
  }
};
static_assert(stdexec::sender<operation<>>);
static_assert(stdexec::sender<operation<status>>);
static_assert(stdexec::sender_to<operation<>, by_stdexec::receiver>);
}  // namespace
#endif

TEST_CASE("senders: for stdexec an operation is a sender as well") {
#if __has_include(<stdexec/execution.hpp>)
  CHECK_NOTHROW(run_local(2, value_and_error<by_stdexec>));
#else
  TUTTI_SKIP("stdexec is not installed");
#endif
}
