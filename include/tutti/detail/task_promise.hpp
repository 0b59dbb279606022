// SPDX-License-Identifier: Apache-2.0
// The promises of tasks and of coroutines that await as tasks do; tasks that a completion token starts.
#pragma once

#include <tutti/detail/asio_await.hpp>
#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/detail/waiting_handler.hpp>

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace tutti::detail {

namespace asio = boost::asio;

// Awaits an awaiter by reference: g++ 12 would copy or move one that await_transform returns by reference.
template <class A>
class awaiter_reference {
 public:
  explicit awaiter_reference(A& awaiter) noexcept : awaiter_(awaiter) {}
  bool await_ready() const { return awaiter_.await_ready(); }
  template <class Promise>
  auto await_suspend(std::coroutine_handle<Promise> h) const {
    return awaiter_.await_suspend(h);
  }
  decltype(auto) await_resume() const { return awaiter_.await_resume(); }

 private:
  A& awaiter_;
};

class task_promise_base : public scoped_promise {
 public:
  static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
  static void operator delete(void* frame, std::size_t bytes) noexcept { release_frame(frame, bytes); }

  std::suspend_always initial_suspend() const noexcept { return {}; }

  // Goes on with the awaiting coroutine, after the last statement or a co_yield.
  struct final_awaiter : std::suspend_always {
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> h) const noexcept {
      task_promise_base& promise = h.promise();
      if (finished_inline(&promise)) return;
      // The resumed coroutine may destroy this frame: do not touch it below.
      if (promise.continuation) resume_bounded(promise.continuation);
    }
  };
  final_awaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { failure = std::current_exception(); }

  template <class A>
    requires(!asio_operation<A> && !is_awaiter<A>)
  A&& await_transform(A&& awaitable) const noexcept {
    return std::forward<A>(awaitable);
  }
  template <is_awaiter A>
  awaiter_reference<A> await_transform(A&& awaiter) const noexcept {
    return awaiter_reference<A>(awaiter);
  }
  template <asio_operation A>
  auto await_transform(A&& operation) const {
    static_assert(!std::is_lvalue_reference_v<A>,
                  "an operation or task is awaited as an rvalue: co_await std::move(it)");
    return asio_awaiter<std::remove_cvref_t<A>>(std::forward<A>(operation));
  }

  std::coroutine_handle<> continuation;
  std::exception_ptr failure;
};

// Base of the promise of a coroutine that belongs to an object. At the coroutine's end it calls ended() of
// `Derived`, which may destroy the frame. The owner sets the scope and starts it by resume_bounded.
template <class Derived>
class owned_promise : public task_promise_base {
 public:
  struct coroutine {
    using promise_type = Derived;
    std::coroutine_handle<Derived> handle;
  };
  std::coroutine_handle<Derived> handle() noexcept {
    return std::coroutine_handle<Derived>::from_promise(static_cast<Derived&>(*this));
  }
  coroutine get_return_object() noexcept { return {handle()}; }
  struct ending : std::suspend_always {
    void await_suspend(std::coroutine_handle<Derived> h) const noexcept { h.promise().ended(); }
  };
  ending final_suspend() const noexcept { return {}; }
  void return_void() const noexcept {}
};

// ---- tasks that a token starts ----

template <class T>
using task_signature = typename handler_signature<std::exception_ptr, T>::type;

// Returns the executor of this thread's runtime.
// Errors: throws errc::wrong_thread on a thread without a runtime.
asio::io_context::executor_type executor_of_this_thread();

// Whether handlers of this type name the executor that they run on.
struct no_executor {};
template <class Handler>
inline constexpr bool has_executor =
    !std::is_same_v<asio::associated_executor_t<Handler, no_executor>, no_executor>;

template <class T>
using task_value = std::optional<std::conditional_t<std::is_void_v<T>, std::monostate, T>>;

template <class T>
auto outcome_of(std::exception_ptr failure, task_value<T> value) {
  if constexpr (std::is_void_v<T>) {
    return std::tuple(failure);
  } else {
    return std::tuple(failure, value ? std::move(*value) : T());
  }
}

// The same. On a thread without a runtime, a handler with an executor of its own, such as an awaitable's, receives
// the error there, and this returns nothing.
template <class T, class Handler>
std::optional<asio::io_context::executor_type> executor_for_task(Handler& handler) {
  if constexpr (has_executor<Handler>) {
    std::exception_ptr failure;
    try {
      return executor_of_this_thread();
    } catch (...) {
      failure = std::current_exception();
    }
    const auto its_own = asio::get_associated_executor(handler);
    post_call(its_own, std::move(handler), outcome_of<T>(failure, {}));
    return std::nullopt;
  } else {
    return executor_of_this_thread();
  }
}

// The promise of a coroutine that destroys itself at its end, or when its runtime ends, and runs in a scope of its own.
class self_owned : public owned_promise<self_owned>, waiting_handler {
 public:
  self_owned() noexcept : waiting_handler(nullptr) { scope = &own_scope_; }
  void ended() noexcept { destroy_frame(handle()); }
  void discard() noexcept override { ended(); }
  using waiting_handler::join;

 private:
  stop_scope own_scope_;
};

// Awaits `body` within its scope, which the handler's cancellation slot stops, then posts the handler.
template <class T, class Task, class Handler, class Work>
self_owned::coroutine carry_out(Task body, Handler handler, Work work) {
  stop_scope* const scope = (co_await own_promise{})->scope;
  std::exception_ptr failure;
  task_value<T> value;
  std::optional<slot_connection<Handler>> cancellation(std::in_place, handler);
  cancellation->connect([s = scope] { s->stop(errc::cancelled, "cancelled"); });
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(body);
    } else {
      value.emplace(co_await std::move(body));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  cancellation.reset();  // once: the handler may destroy the slot's signal, on another thread
  const auto executor = work.get_executor();
  post_call(executor, std::move(handler), outcome_of<T>(failure, std::move(value)));
}

}  // namespace tutti::detail
