// SPDX-License-Identifier: Apache-2.0
// task<T>: a lazy coroutine.
#pragma once

#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/detail/task_promise.hpp>
#include <tutti/error.hpp>

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace tutti {

template <class T = void>
class task;

namespace detail {

// An awaitable that refers to a temporary of the full expression that makes it.
template <class A>
concept refers_to_temporary = requires { requires std::remove_cvref_t<A>::on_temporary; };

template <class T>
class result_promise : public task_promise_base {
 public:
  template <class U = T>
    requires std::is_convertible_v<U&&, T>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T take() {
    if (failure) std::rethrow_exception(failure);
    return std::move(*value);
  }
  std::optional<T> value;
};

template <>
class result_promise<void> : public task_promise_base {
 public:
  void return_void() const noexcept {}
  void take() const {
    if (failure) std::rethrow_exception(failure);
  }
};

template <class T>
class task_promise : public result_promise<T> {
 public:
  task<T> get_return_object() noexcept {
    return task<T>(std::coroutine_handle<task_promise>::from_promise(*this));
  }
};

}  // namespace detail

// A coroutine that starts when it is awaited and returns its value or exception to the awaiting coroutine.
// Awaited once, as an rvalue: the await takes over the frame, and the task is empty afterwards. It runs on
// the thread that resumes it, which inside a runtime is the loop thread.
// With g++ before 13, write `bool ok = co_await x; if (ok) ...`, never `if (co_await x)`, and give coroutine
// lambdas no captures. CONTRIBUTING.md lists what that compiler gets wrong.
// Completes: when its body returns.
// Errors: those of its body. errc::invalid_argument if the task is empty.
// Cancellation: destroying a task, or the coroutine that awaits it, destroys its frame. Operations pending in
// it are cancelled first, and their buffers may be reused when the destructor returns.
// Cost: frames are recycled, so steady state allocates nothing. Chains of awaits of any length or depth use a
// bounded amount of stack at every optimisation level.
template <class T>
class [[nodiscard("a task does nothing until it is awaited")]] task {
 public:
  using promise_type = detail::task_promise<T>;

  class awaiter {
   public:
    explicit awaiter(detail::owned_frame<promise_type> frame) noexcept : frame_(std::move(frame)) {}
    awaiter(const awaiter&) = delete;
    bool await_ready() const noexcept { return !frame_; }
    template <class Parent>
    bool await_suspend(std::coroutine_handle<Parent> parent) const noexcept {
      const std::coroutine_handle<promise_type> child = frame_.get();
      child.promise().continuation = parent;
      child.promise().scope = detail::scope_of(parent);
      return !detail::run_child(static_cast<detail::task_promise_base*>(&child.promise()), child);
    }
    T await_resume() const {
      if (!frame_) throw error(errc::invalid_argument, "a task was awaited twice, or was moved from");
      return frame_.get().promise().take();
    }

   private:
    detail::owned_frame<promise_type> frame_;
  };
  awaiter operator co_await() && noexcept { return awaiter(std::move(frame_)); }

  // Starts the task now by an Asio completion token, such as `std::move(t)(boost::asio::use_future)`. The
  // signature is void(std::exception_ptr) or void(std::exception_ptr, T); T needs a default constructor. Call
  // it on the thread of a runtime. A handler without an executor of its own gets that of the runtime.
  // Errors: errc::wrong_thread on another thread, where the task does not start. A handler with an executor,
  // such as that of use_awaitable, receives the error there. Without an executor the call throws.
  // Cancellation: the handler's cancellation slot ends the task as with_timeout would. If the last runtime of its
  // io_context ends first, the task is destroyed where it waits, and its handler without being called.
  // Cost: two allocations.
  template <boost::asio::completion_token_for<detail::task_signature<T>> Token>
  auto operator()(Token&& token) && {
    return boost::asio::async_initiate<Token, detail::task_signature<T>>(
        [](auto&& handler, task body) {
          using handler_type = std::decay_t<decltype(handler)>;
          const auto executor = detail::executor_for_task<T>(handler);
          if (!executor) return;
          auto work = boost::asio::make_work_guard(boost::asio::get_associated_executor(handler, *executor));
          const auto started = detail::carry_out<T, task, handler_type, decltype(work)>(
              std::move(body), handler_type(std::forward<decltype(handler)>(handler)), std::move(work));
          started.handle.promise().join(&executor->context());
          detail::resume_bounded(started.handle);
        },
        token, std::move(*this));
  }

 private:
  friend promise_type;
  explicit task(std::coroutine_handle<promise_type> h) noexcept : frame_(h) {}
  detail::owned_frame<promise_type> frame_;
};

// A task that refers to a temporary. It is awaited in the same expression: it does not convert to a task, which could
// outlive the temporary.
template <class T>
class [[nodiscard("a task does nothing until it is awaited")]] task_on_temporary {
 public:
  static constexpr bool on_temporary = true;
  explicit task_on_temporary(task<T>&& of) noexcept : of_(std::move(of)) {}
  auto operator co_await() && noexcept { return std::move(of_).operator co_await(); }

 private:
  task<T> of_;
};

namespace detail {

// What a function that awaits an A in a task returns.
template <class A, class T>
auto bound_to(task<T>&& made) {
  if constexpr (refers_to_temporary<A>) {
    return task_on_temporary<T>(std::move(made));
  } else {
    return std::move(made);
  }
}

}  // namespace detail

}  // namespace tutti
