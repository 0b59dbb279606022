// SPDX-License-Identifier: Apache-2.0
// sleep_for, now: the time of the loop, which in a simulation is virtual (tutti/sim.hpp).
#pragma once

#include <tutti/detail/deadline.hpp>
#include <tutti/detail/stop_scope.hpp>

#include <chrono>
#include <coroutine>
#include <cstddef>

namespace tutti {
namespace detail {

// The awaiter of sleep_for; joins the scope of its coroutine.
class [[nodiscard("nothing sleeps until it is awaited")]] sleeping : stop_node {
 public:
  explicit sleeping(std::chrono::steady_clock::duration d) noexcept : stop_node(&ask), how_long_(d) {}
  // Moves a sleep that has not been awaited.
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
  bool asleep_ = false;
  alignas(std::max_align_t) std::byte timer_[80];
};

}  // namespace detail

// The time of this thread's runtime: that of steady_clock, or virtual time in a simulation.
inline std::chrono::steady_clock::time_point now() noexcept { return detail::loop_time(); }

// Suspends the coroutine for time `d`. With zero or less it lets the loop take one turn. With more than the
// clock can count, such as duration::max(), it never resumes by itself.
// Errors: errc::wrong_thread on a thread without a tutti::runtime.
// Cancellation: a stopped scope ends it at once with the scope's reason: a deadline, a cancelled task or a
// decided when_any.
// Cost: one timer of the loop; in steady state no allocation.
template <class Rep, class Period>
detail::sleeping sleep_for(std::chrono::duration<Rep, Period> d) noexcept {
  return detail::sleeping(detail::saturated(d));
}

}  // namespace tutti
