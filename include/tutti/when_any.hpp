// SPDX-License-Identifier: Apache-2.0
// when_any: awaits several awaitables at once; the first to end stops the others.
#pragma once

#include <tutti/detail/branch.hpp>
#include <tutti/detail/stop_scope.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace tutti {

// The result of when_any: a variant with the result of the first branch to end (std::monostate for void).
// index() tells which one. Other branches may have succeeded before they could be stopped. late<I>() has
// their results, so that no message is lost, for example one received just as a timer fired.
template <class... T>
class any_result : public std::variant<T...> {
 public:
  template <std::size_t I>
  using type = std::tuple_element_t<I, std::tuple<T...>>;

  template <std::size_t I>
  any_result(std::in_place_index_t<I> which, type<I>&& value, std::tuple<std::optional<T>...>&& late)
      : std::variant<T...>(which, std::move(value)), late_(std::move(late)) {}

  // The result of branch I if it also succeeded, later than the first; otherwise null.
  template <std::size_t I>
  type<I>* late() noexcept {
    std::optional<type<I>>& one = std::get<I>(late_);
    return one ? &*one : nullptr;
  }

 private:
  std::tuple<std::optional<T>...> late_;
};

namespace detail {

template <class... A>
class race : join_counter {
  template <class B>
  using kept = typename task_value<std::remove_cvref_t<await_result_t<B>>>::value_type;
  using result = any_result<kept<A>...>;
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

 public:
  static constexpr bool on_temporary = (refers_to_temporary<A> || ...);
  explicit race(A&&... awaitables) : branches_(join_branch<A>(std::forward<A>(awaitables))...) {}
  // Moves a race that has not been awaited.
  race(race&& other) noexcept : join_counter(other), branches_(std::move(other.branches_)) {}

  bool await_ready() const noexcept { return false; }
  template <class Parent>
  bool await_suspend(std::coroutine_handle<Parent> waiting) {
    scope_.inside(scope_of(waiting));
    on_end = [](join_counter& c, std::size_t index) noexcept {
      auto& self = static_cast<race&>(c);
      if (self.first_ != none) return;
      self.first_ = index;
      if (self.started_ == 1 && !self.parent) return;  // ended at once: no other branch has been started
      self.scope_.stop(errc::cancelled, "another branch of when_any ended first");
    };
    left = sizeof...(A) + 1;
    std::size_t index = 0;
    std::apply([&](auto&... branch) { (start(branch, index++), ...); }, branches_);
    parent = waiting;
    return --left > 0;
  }
  result await_resume() { return take(std::index_sequence_for<A...>{}); }

 private:
  template <class Branch>
  void start(Branch& branch, std::size_t index) {
    // A branch that would be stopped at once is not started.
    if (first_ != none) {
      --left;
    } else {
      started_ = index + 1;
      branch.start(*this, index, &scope_);
    }
  }
  template <std::size_t... I>
  result take(std::index_sequence<I...>) {
    std::optional<result> taken;
    ((I == first_ ? take_first<I>(taken) : void()), ...);
    return std::move(*taken);
  }
  template <std::size_t I>
  void take_first(std::optional<result>& taken) {
    auto& branch = std::get<I>(branches_);
    if (branch.failure()) std::rethrow_exception(branch.failure());
    kept<std::tuple_element_t<I, std::tuple<A...>>> value = std::move(*branch.result());
    branch.result().reset();
    taken.emplace(std::in_place_index<I>, std::move(value), late(std::index_sequence_for<A...>{}));
  }
  template <std::size_t... I>
  std::tuple<std::optional<kept<A>>...> late(std::index_sequence<I...>) {
    return {std::move(std::get<I>(branches_).result())...};
  }

  stop_scope scope_;  // outlives the branches
  std::tuple<join_branch<A>...> branches_;
  std::size_t first_ = none;
  std::size_t started_ = 0;
};

}  // namespace detail

// Starts all awaitables in the order given. When the first ends, asks the others to end early, and returns its result
// as an any_result. If one ends at once, those behind it are not started. Takes what when_all takes, but
// no range.
// Completes: when all have ended, so no buffer is in use any more.
// Errors: if the first to end failed, rethrows its exception.
// Cancellation: of the stopped branches, a send, receive or probe ends with errc::cancelled and loses no
// message. A collective fails its communicator on all ranks. An Asio operation is cancelled. A task is
// interrupted at its next await of one of those. compute runs to its end.
// Cost: one recycled frame per branch; for each stopped one an exception: some microseconds and allocations.
template <class... A>
auto when_any(A&&... awaitables) {
  static_assert(sizeof...(A) > 0, "when_any needs something to wait for");
  static_assert(
      !(requires { std::declval<A&>().begin(); } || ...),
      "when_any takes no range: it stops the others. To take each of several requests when it completes, "
      "spawn a task for each in a scope");
  return detail::race<A...>(std::forward<A>(awaitables)...);
}

}  // namespace tutti
