// SPDX-License-Identifier: Apache-2.0
// The branches of when_all and when_any. Each awaits one awaitable and keeps its result or exception.
#pragma once

#include <tutti/detail/stop_scope.hpp>
#include <tutti/task.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <type_traits>
#include <utility>

namespace tutti::detail {

template <class A>
decltype(auto) awaiter_of(A&& a) {
  if constexpr (requires { std::forward<A>(a).operator co_await(); }) {
    return std::forward<A>(a).operator co_await();
  } else {
    return std::forward<A>(a);
  }
}

// The result of awaiting A in a branch, also for Asio operations.
template <class A>
using await_result_t =
    decltype(awaiter_of(std::declval<task_promise_base&>().await_transform(std::declval<A>()))
                 .await_resume());

// Counts the branches that have not ended, and knows the coroutine that waits for them.
struct join_counter {
  std::size_t left = 0;
  std::coroutine_handle<> parent;
  // Called with the index of each branch that ends.
  void (*on_end)(join_counter&, std::size_t index) noexcept = nullptr;
  // Reports the end of a branch. The last one resumes the parent.
  void arrive(std::size_t index) {
    if (on_end != nullptr) on_end(*this, index);
    if (--left == 0 && parent) resume_bounded(parent);
  }
};

template <class A>
struct branch_promise : owned_promise<branch_promise<A>> {
  void ended() noexcept { counter->arrive(index); }

  join_counter* counter = nullptr;
  std::size_t index = 0;
  task_value<std::remove_cvref_t<await_result_t<A>>> result;
};

template <class A>
class join_branch {
  using promise = branch_promise<A>;

 public:
  explicit join_branch(A&& awaitable) : frame_(run(std::forward<A>(awaitable)).handle) {}

  void start(join_counter& counter, std::size_t index, stop_scope* scope) {
    promise& p = frame_.get().promise();
    p.counter = &counter;
    p.index = index;
    p.scope = scope;
    resume_bounded(frame_.get());
  }
  std::exception_ptr failure() const noexcept { return frame_.get().promise().failure; }
  auto& result() noexcept { return frame_.get().promise().result; }

 private:
  static typename promise::coroutine run(A awaitable) {
    auto& self = static_cast<promise&>(*co_await own_promise{});
    if constexpr (std::is_void_v<await_result_t<A>>) {
      co_await static_cast<A&&>(awaitable);
      self.result.emplace();
    } else {
      self.result.emplace(co_await static_cast<A&&>(awaitable));
    }
  }

  owned_frame<promise> frame_;
};

}  // namespace tutti::detail
