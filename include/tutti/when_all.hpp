// SPDX-License-Identifier: Apache-2.0
// when_all: awaits several awaitables at once.
#pragma once

#include <tutti/detail/branch.hpp>
#include <tutti/request.hpp>

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tutti {
namespace detail {

template <class... A>
class join {
 public:
  static constexpr bool on_temporary = (refers_to_temporary<A> || ...);
  explicit join(A&&... awaitables) : branches_(join_branch<A>(std::forward<A>(awaitables))...) {}

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
    return std::apply([](auto&... branch) { return std::make_tuple(std::move(*branch.result())...); },
                      branches_);
  }

 private:
  std::tuple<join_branch<A>...> branches_;
  join_counter counter_;
};

// Requests that are awaited together: their coroutine is resumed once.
template <class T>
class join_requests final : stop_node {
 public:
  join_requests(std::span<basic_request<T>> requests, std::span<T> results) noexcept
      : requests_(requests), results_(results) {}
  // Moves a join that has not been awaited.
  join_requests(join_requests&& other) noexcept : join_requests(other.requests_, other.results_) {}
  ~join_requests() {
    if (waiting_) leave_requests();
  }

  bool await_ready() const noexcept {
    for (const basic_request<T>& r : requests_)
      if (!r.done()) return false;
    return true;
  }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
    for (basic_request<T>& r : requests_) {
      if (r.done()) continue;
      if (!r.slot_->state->set_waiter(&arrived, this)) {
        second_ = true;
        leave_requests();
        return false;
      }
      ++left_;
    }
    waiting_ = h;
    join_or_stop(scope_of(h));
    return true;
  }
  void await_resume() {
    waiting_ = {};
    if (second_)
      throw error(errc::invalid_argument, "a request was awaited twice: another coroutine waits for it");
    std::exception_ptr first;
    std::size_t index = 0;
    for (basic_request<T>& r : requests_) {
      const std::size_t at = index++;
      if (!r) continue;
      try {
        T value = r.take();
        if (at < results_.size()) results_[at] = std::move(value);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  static void arrived(operation_state& one) noexcept {
    auto& all = *static_cast<join_requests*>(one.owner());
    if (--all.left_ == 0) resume_bounded(all.waiting_);
  }
  // The requests complete from the loop, after this.
  void on_stop(const stop_scope& stopped) noexcept override {
    for (basic_request<T>& r : requests_)
      if (!r.done()) r.state()->stop(stopped.why(), stopped.text());
  }
  void leave_requests() noexcept {
    for (basic_request<T>& r : requests_)
      if (r.slot_ != nullptr) r.slot_->state->clear_waiter(this);
  }

  const std::span<basic_request<T>> requests_;
  const std::span<T> results_;
  std::size_t left_ = 0;
  std::coroutine_handle<> waiting_;
  bool second_ = false;
};

// Requests one after the other in memory, of a program's variable.
template <class R>
concept RequestRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && std::ranges::borrowed_range<R> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>> &&
    std::same_as<std::ranges::range_value_t<R>,
                 basic_request<typename std::ranges::range_value_t<R>::value_type>>;
template <class R>
using value_of_requests = typename std::ranges::range_value_t<R>::value_type;

}  // namespace detail

// Awaits every request of a contiguous range, as MPI_Waitall does: `co_await tutti::when_all(receiving);`.
// Skips empty requests; all are empty afterwards. `results`, where given, takes the result of each, by index.
// Completes: when every request has completed.
// Buffers: both ranges stay as they are until then. Destroying the awaiting frame leaves the requests pending.
// Errors: rethrows the failure of the first request that failed, in order, after all have ended;
//   errc::invalid_argument when another coroutine waits for one of them, and, thrown by the call, when `results` is
//   shorter than `requests`.
// Cancellation: stops every request that is pending.
// Cost: resumes the coroutine once; allocates nothing.
template <detail::RequestRange R>
auto when_all(R&& requests) {
  using value = detail::value_of_requests<R>;
  return detail::join_requests<value>(requests, {});
}
template <detail::RequestRange R, class Results>
  requires std::constructible_from<std::span<detail::value_of_requests<R>>, Results&>
auto when_all(R&& requests, Results&& results) {
  using value = detail::value_of_requests<R>;
  const std::span<value> taken(results);
  if (taken.size() < std::ranges::size(requests))
    throw error(errc::invalid_argument, "when_all: there are fewer results than requests");
  return detail::join_requests<value>(requests, taken);
}

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
