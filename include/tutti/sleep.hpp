// SPDX-License-Identifier: Apache-2.0
// sleep_for, now: time as the loop has it, which in a simulation is virtual (tutti/sim.hpp).
#pragma once

#include <tutti/detail/deadline.hpp>
#include <tutti/detail/stop_scope.hpp>

#include <chrono>
#include <coroutine>
#include <cstddef>

namespace tutti {
namespace detail {

// In the awaiting frame; joins the scope of its coroutine.
class [[nodiscard("nothing sleeps until it is awaited")]] sleeping : stop_node {
 public:
  explicit sleeping(std::chrono::steady_clock::duration d) noexcept : stop_node(&ask), how_long_(d) {}
  // Only before it is awaited.
  sleeping(sleeping&& other) noexcept : sleeping(other.how_long_) {}
  ~sleeping();

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) {
    waiting_ = h;
    scope_ = scope_of(h);
    if (scope_ != nullptr && scope_->stopped()) {
      stopped_ = scope_;
      return false;
    }
    begin();
    if (scope_ != nullptr) join(*scope_);
    return true;
  }
  void await_resume() const;

 private:
  static void ask(stop_node& node) noexcept;
  void begin();
  void end() noexcept;

  const std::chrono::steady_clock::duration how_long_;
  std::coroutine_handle<> waiting_;
  stop_scope* scope_ = nullptr;
  stop_scope* stopped_ = nullptr;
  void* loop_ = nullptr;  // while it sleeps
  alignas(std::max_align_t) std::byte timer_[48];
};

}  // namespace detail

// The time by which this thread's runtime goes: steady_clock's, but in a simulation.
inline std::chrono::steady_clock::time_point now() noexcept { return detail::loop_time(); }

// co_await sleep_for(d): goes on after `d`. With zero or less it lets the loop take one turn. With more than
// the clock can count, such as duration::max(), it never goes on by itself. In a coroutine on the thread of a
// tutti::runtime (errc::wrong_thread otherwise). In a scope that is stopped it ends at once, with the scope's
// reason: a deadline, a cancelled task, a when_any that is decided. One timer of the loop, nothing allocated
// in steady state.
template <class Rep, class Period>
detail::sleeping sleep_for(std::chrono::duration<Rep, Period> d) noexcept {
  return detail::sleeping(detail::saturated(d));
}

}  // namespace tutti
