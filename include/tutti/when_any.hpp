// SPDX-License-Identifier: Apache-2.0
// when_any: several awaitables at once; the first to end ends the others.
#pragma once

#include <tutti/detail/branch.hpp>
#include <tutti/detail/stop_scope.hpp>

#include <array>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>

namespace tutti {

// What when_any gives: a variant of the results (std::monostate for void) that holds that of the first to
// end; index() says which. More than one may have ended well before the others could be stopped: late<I>()
// has what those gave, so that, say, a message that was received in the same moment as a timer fired is not
// lost.
template <class... T>
class any_result : public std::variant<T...> {
 public:
  template <std::size_t I>
  using type = std::tuple_element_t<I, std::tuple<T...>>;

  template <std::size_t I>
  any_result(std::in_place_index_t<I> which, type<I>&& value, std::tuple<std::optional<T>...>&& late)
      : std::variant<T...>(which, std::move(value)), late_(std::move(late)) {}

  // The result of branch I when it ended well too, later than the first. Null otherwise.
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
  using kept = typename slot_of<await_result_t<B>>::value_type;
  using result = any_result<kept<A>...>;
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

 public:
  explicit race(A&&... awaitables) : branches_(join_branch<A>::make(std::forward<A>(awaitables))...) {}
  // Only before it is awaited.
  race(race&& other) noexcept : join_counter(other), branches_(std::move(other.branches_)) {}

  bool await_ready() const noexcept { return false; }
  template <class Parent>
  bool await_suspend(std::coroutine_handle<Parent> waiting) {
    scope_.inside(scope_of(waiting));
    on_end = [](join_counter& c, std::size_t index) noexcept {
      auto& self = static_cast<race&>(c);
      if (self.first_ != none) return;
      self.first_ = index;
      if (index == 0 && !self.parent) return;  // at once: no other has been started
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
    // What would be stopped at once is not begun.
    if (first_ != none) {
      --left;
    } else {
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
    kept<std::tuple_element_t<I, std::tuple<A...>>> value = branch.take();
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
};

}  // namespace detail

// Starts all of them in the order given; when the first has ended, the others are asked to end early, and it
// completes when all have: no buffer is in use any more. The result is an any_result; when the first to end
// failed, its exception is rethrown. One that is complete at once keeps those behind it from being started at
// all.
//
// Takes what when_all takes. What is stopped: point to point ends with errc::cancelled and loses no message;
// a collective fails its communicator on all ranks, here as elsewhere; an Asio operation is cancelled; a task
// hears of it at its next await of one of those; compute runs to its end. Waits for nothing but these. Each
// branch that is stopped ends by an exception: some microseconds and allocations; without such, one recycled
// frame a branch.
template <class... A>
auto when_any(A&&... awaitables) {
  static_assert(sizeof...(A) > 0, "when_any needs something to wait for");
  return detail::race<A...>(std::forward<A>(awaitables)...);
}

}  // namespace tutti
