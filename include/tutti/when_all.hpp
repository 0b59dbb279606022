// SPDX-License-Identifier: Apache-2.0
// when_all: awaits several awaitables at once.
#pragma once

#include <tutti/detail/branch.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <tuple>
#include <utility>

namespace tutti {
namespace detail {

template <class... A>
class join {
 public:
  explicit join(A&&... awaitables) : branches_(join_branch<A>::make(std::forward<A>(awaitables))...) {}

  bool await_ready() const noexcept { return false; }
  template <class Parent>
  bool await_suspend(std::coroutine_handle<Parent> parent) {
    stop_scope* const scope = scope_of(parent);
    // One extra count for this function: no branch resumes the parent before all have started.
    counter_.left = sizeof...(A) + 1;
    std::size_t index = 0;
    std::apply([&](auto&... branch) { (branch.start(counter_, index++, scope), ...); }, branches_);
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

// Starts all awaitables in the order given and returns a tuple of their results, std::monostate for void.
// Takes operations, tasks, Asio operations (rvalues) and requests (lvalues).
// Completes: when all have ended, so no buffer is in use when co_await returns.
// Errors: rethrows the first failure in the order given, after all have ended.
// Cancellation: destroying the awaiting frame cancels all of them.
// Cost: one recycled frame per awaitable; in steady state no allocation.
template <class... A>
auto when_all(A&&... awaitables) {
  static_assert(sizeof...(A) > 0, "when_all needs something to wait for");
  return detail::join<A...>(std::forward<A>(awaitables)...);
}

}  // namespace tutti
