// SPDX-License-Identifier: Apache-2.0
// sleep_for, now: the time of the loop, which in a simulation is virtual (tutti/sim.hpp).
#pragma once

#include <tutti/detail/deadline.hpp>
#include <tutti/detail/stop_scope.hpp>

#include <chrono>

namespace tutti {
namespace detail {

// The awaiter of sleep_for.
class [[nodiscard("nothing sleeps until it is awaited")]] sleeping : scope_waiter<sleeping> {
 public:
  explicit sleeping(std::chrono::steady_clock::duration d) noexcept : how_long_(d) {}
  // Moves a sleep that has not been awaited.
  sleeping(sleeping&& other) noexcept : sleeping(other.how_long_) {}

  bool await_ready() const noexcept { return false; }
  using scope_waiter::await_suspend;
  void await_resume() { resumed("sleep_for"); }

 private:
  friend scope_waiter<sleeping>;
  void begin_wait() {
    alarm_.set(after(loop_time(), how_long_), "sleep_for was awaited", "await it in a task that runs there");
  }
  void end_wait() noexcept { alarm_.clear(); }

  const std::chrono::steady_clock::duration how_long_;
  loop_alarm alarm_{[](void* self) noexcept { static_cast<sleeping*>(self)->wake(); }, this};
};

}  // namespace detail

// The time of this thread's runtime: that of steady_clock, or virtual time in a simulation.
inline std::chrono::steady_clock::time_point now() noexcept { return detail::loop_time(); }

// Suspends the coroutine for time `d`. With zero or less it lets the loop take one turn. With more than the
// clock can count, such as duration::max(), it never resumes by itself.
// Errors: errc::wrong_thread on a thread without a tutti::runtime.
// Cancellation: ends at once, with the reason (a deadline, a cancelled task, a decided when_any).
// Cost: one timer of the loop; in steady state no allocation.
template <class Rep, class Period>
detail::sleeping sleep_for(std::chrono::duration<Rep, Period> d) noexcept {
  return detail::sleeping(detail::saturated(d));
}

}  // namespace tutti
