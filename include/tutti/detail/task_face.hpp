// SPDX-License-Identifier: Apache-2.0
// A task started by an Asio completion token.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/detail/waiting_handler.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace tutti::detail {

namespace asio = boost::asio;

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

template <class T, class Executor, class Handler>
void post_outcome(const Executor& executor, Handler handler, std::exception_ptr failure,
                  task_value<T> value) {
  if constexpr (std::is_void_v<T>) {
    asio::post(executor, [h = std::move(handler), failure]() mutable { std::move(h)(failure); });
  } else {
    asio::post(executor, [h = std::move(handler), failure, v = value ? std::move(*value) : T()]() mutable {
      std::move(h)(failure, std::move(v));
    });
  }
}

// Returns the executor of this thread's runtime. On a thread without a runtime, a handler with an executor of
// its own, such as an awaitable's, receives errc::wrong_thread there, and this returns nothing. For other
// handlers it throws errc::wrong_thread.
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
    post_outcome<T>(its_own, std::move(handler), failure, {});
    return std::nullopt;
  } else {
    return executor_of_this_thread();
  }
}

// A coroutine that destroys itself at its end, or when its runtime ends.
template <class Promise>
struct self_owned {
  struct promise_type : Promise, waiting_handler {
    promise_type() noexcept : waiting_handler(nullptr, &discard) {}
    static void discard(waiting_handler& h) noexcept {
      destroy_frame(std::coroutine_handle<promise_type>::from_promise(static_cast<promise_type&>(h)));
    }
    using waiting_handler::join;
    self_owned get_return_object() noexcept {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
  };
  std::coroutine_handle<promise_type> handle;
};

// Lets the handler's cancellation slot stop a scope.
template <class Handler>
class stops_by_slot {
 public:
  stops_by_slot(const Handler& handler, stop_scope& scope)
      : slot_(asio::get_associated_cancellation_slot(handler)) {
    if (!slot_.is_connected()) return;
    slot_.assign([s = &scope](asio::cancellation_type type) {
      if (type != asio::cancellation_type::none) s->stop(errc::cancelled, "cancelled");
    });
  }
  stops_by_slot(const stops_by_slot&) = delete;
  ~stops_by_slot() { clear(); }
  void clear() noexcept {
    if (slot_.is_connected()) slot_.clear();
  }

 private:
  asio::associated_cancellation_slot_t<Handler> slot_;
};

// Awaits `body` within a scope that the handler's cancellation slot stops, then posts the handler.
template <class Promise, class T, class Task, class Handler, class Work>
self_owned<Promise> carry_out(Task body, Handler handler, Work work, std::unique_ptr<stop_scope> scope) {
  Task inside = std::move(body);  // ends before the scope, which may be the first parameter to be destroyed
  std::exception_ptr failure;
  task_value<T> value;
  stops_by_slot<Handler> cancellation(handler, *scope);
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(inside);
    } else {
      value.emplace(co_await std::move(inside));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  cancellation.clear();
  const auto executor = work.get_executor();
  post_outcome<T>(executor, std::move(handler), failure, std::move(value));
}

}  // namespace tutti::detail
