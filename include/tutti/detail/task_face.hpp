// SPDX-License-Identifier: Apache-2.0
// A task started by an Asio completion token.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/stop_scope.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace tutti::detail {

namespace asio = boost::asio;

template <class T>
struct task_signature {
  using type = void(std::exception_ptr, T);
};
template <>
struct task_signature<void> {
  using type = void(std::exception_ptr);
};

// The executor of this thread's runtime; throws errc::wrong_thread where there is none.
asio::io_context::executor_type executor_of_this_thread();

// A coroutine that frees itself at its end.
template <class Promise>
struct self_owned {
  struct promise_type : Promise {
    self_owned get_return_object() noexcept {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
  };
  std::coroutine_handle<promise_type> handle;
};

// Awaits `body` within a scope that the handler's cancellation slot stops, then posts the handler.
template <class Promise, class T, class Task, class Handler, class Work>
self_owned<Promise> carry_out(Task body, Handler handler, Work work, stop_scope* scope) {
  std::exception_ptr failure;
  std::optional<std::conditional_t<std::is_void_v<T>, std::monostate, T>> value;
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(body);
    } else {
      value.emplace(co_await std::move(body));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  if (auto slot = asio::get_associated_cancellation_slot(handler); slot.is_connected()) slot.clear();
  delete scope;
  const auto executor = work.get_executor();
  if constexpr (std::is_void_v<T>) {
    asio::post(executor, [h = std::move(handler), failure]() mutable { std::move(h)(failure); });
  } else {
    asio::post(executor, [h = std::move(handler), failure, v = value ? std::move(*value) : T()]() mutable {
      std::move(h)(failure, std::move(v));
    });
  }
}

}  // namespace tutti::detail
