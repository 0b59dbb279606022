// SPDX-License-Identifier: Apache-2.0
// deadline_scope: a scope that is stopped at a time.
#pragma once

#include <tutti/detail/stop_scope.hpp>

#include <chrono>
#include <cstddef>
#include <string_view>

namespace tutti::detail {

// Converts `d` to the clock's unit. A duration that is too long becomes the longest one.
template <class Rep, class Period>
constexpr std::chrono::steady_clock::duration saturated(std::chrono::duration<Rep, Period> d) noexcept {
  using target = std::chrono::steady_clock::duration;
  const std::chrono::duration<long double, target::period> wide(d);
  if (!(wide < target::max())) return target::max();  // also for NaN
  if (wide <= target::min()) return target::min();
  return std::chrono::duration_cast<target>(d);
}
// Returns `t` plus `d`, or the largest time point, which never comes, if the clock cannot represent the sum.
std::chrono::steady_clock::time_point after(std::chrono::steady_clock::time_point t,
                                            std::chrono::steady_clock::duration d) noexcept;
template <class Rep, class Period>
std::chrono::steady_clock::time_point after(std::chrono::steady_clock::time_point t,
                                            std::chrono::duration<Rep, Period> d) noexcept {
  return after(t, saturated(d));
}

// The time of this thread's runtime, virtual in a simulation; or that of steady_clock.
std::chrono::steady_clock::time_point loop_time() noexcept;

// Calls a function at a time of this thread's runtime, and keeps the loop running, until it is cleared.
class loop_alarm {
 public:
  loop_alarm(void (*fire)(void* owner) noexcept, void* owner) noexcept;
  loop_alarm(const loop_alarm&) = delete;
  ~loop_alarm();
  // Errors: throws errc::wrong_thread on a thread without a runtime, for `what` and with `cure`.
  void set(std::chrono::steady_clock::time_point when, std::string_view what, std::string_view cure);
  void clear() noexcept;

 private:
  alignas(std::max_align_t) std::byte timer_[80];
};

// A scope that is stopped with errc::timed_out at `when`. `asked` is the duration that the user gave, for the
// error text; max(), which never passes, if the user gave a time point.
// Errors: throws errc::wrong_thread on a thread without a runtime.
class deadline_scope : public stop_scope {
 public:
  deadline_scope(std::chrono::steady_clock::time_point when, std::chrono::steady_clock::duration asked);

 private:
  const std::chrono::steady_clock::duration asked_;
  loop_alarm alarm_;
};

}  // namespace tutti::detail
