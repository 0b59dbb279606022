// SPDX-License-Identifier: Apache-2.0
// when_all: several awaitables at once, joined.
#pragma once

#include <tutti/task.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace tutti {
namespace detail {

template <class A>
decltype(auto) awaiter_of(A&& a) {
  if constexpr (requires { std::forward<A>(a).operator co_await(); }) {
    return std::forward<A>(a).operator co_await();
  } else {
    return std::forward<A>(a);
  }
}

// As a branch awaits it, Asio operations included.
template <class A>
using await_result_t = decltype(awaiter_of(std::declval<task_promise_base&>().await_transform(std::declval<A>())).await_resume());

struct join_counter {
  std::size_t left = 0;
  std::coroutine_handle<> parent;
  // The last one to arrive resumes the parent.
  void arrive() {
    if (--left == 0 && parent) resume_bounded(parent);
  }
};

template <class T>
using slot_of = std::optional<std::conditional_t<std::is_void_v<T>, std::monostate, T>>;

// One branch: awaits its part and keeps the result or the exception.
template <class A>
class join_branch {
 public:
  using value = await_result_t<A>;

  struct promise_type : task_promise_base {
    join_branch get_return_object() noexcept {
      return join_branch(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    struct arriving {
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> h) const noexcept { h.promise().counter->arrive(); }
      void await_resume() const noexcept {}
    };
    arriving final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    join_counter* counter = nullptr;
    slot_of<value> result;
  };

  explicit join_branch(std::coroutine_handle<promise_type> h) noexcept : handle_(h) {}
  join_branch(join_branch&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  ~join_branch() {
    if (handle_) destroy_frame(handle_);
  }

  void start(join_counter& counter) {
    handle_.promise().counter = &counter;
    resume_bounded(handle_);
  }
  std::exception_ptr failure() const noexcept { return handle_.promise().failure; }
  auto take() { return std::move(*handle_.promise().result); }

  static join_branch make(A awaitable) {
    auto& self = *co_await this_promise{};
    if constexpr (std::is_void_v<value>) {
      co_await static_cast<A&&>(awaitable);
      self.result.emplace();
    } else {
      self.result.emplace(co_await static_cast<A&&>(awaitable));
    }
  }

 private:
  struct this_promise {
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<promise_type> h) noexcept {
      promise = &h.promise();
      return false;
    }
    promise_type* await_resume() const noexcept { return promise; }
    promise_type* promise = nullptr;
  };
  std::coroutine_handle<promise_type> handle_;
};

template <class... A>
class join {
 public:
  explicit join(A&&... awaitables) : branches_(join_branch<A>::make(std::forward<A>(awaitables))...) {}

  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> parent) {
    // One extra for this function: no branch resumes the parent before all have been started.
    counter_.left = sizeof...(A) + 1;
    std::apply([this](auto&... branch) { (branch.start(counter_), ...); }, branches_);
    counter_.parent = parent;
    return --counter_.left > 0;
  }
  auto await_resume() {
    std::exception_ptr first;
    std::apply([&](auto&... branch) { ((first = first ? first : branch.failure()), ...); }, branches_);
    if (first) std::rethrow_exception(first);
    return std::apply([](auto&... branch) { return std::make_tuple(branch.take()...); }, branches_);
  }

 private:
  std::tuple<join_branch<A>...> branches_;
  join_counter counter_;
};

}  // namespace detail

// Starts all of them in the order given, and completes when every one has completed.
//
// Takes operations, tasks, Asio operations (rvalues) and requests (lvalues). The result is a tuple of their results,
// std::monostate for void. When some fail, the first in order is rethrown, after all have ended: no buffer is in use
// any more when co_await returns, by any path. Destroying the awaiting frame cancels them all. Allocates nothing in
// steady state (one recycled frame each).
template <class... A>
auto when_all(A&&... awaitables) {
  static_assert(sizeof...(A) > 0, "when_all needs something to wait for");
  return detail::join<A...>(std::forward<A>(awaitables)...);
}

}  // namespace tutti
