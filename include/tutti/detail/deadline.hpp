// SPDX-License-Identifier: Apache-2.0
// A time at which a scope is stopped.
#pragma once

#include <tutti/detail/stop_scope.hpp>

#include <chrono>
#include <cstddef>
#include <optional>

namespace tutti::detail {

// `d` in the clock's unit. What is too long for that becomes the longest duration.
template <class Rep, class Period>
constexpr std::chrono::steady_clock::duration saturated(std::chrono::duration<Rep, Period> d) noexcept {
  using target = std::chrono::steady_clock::duration;
  const std::chrono::duration<long double, target::period> wide(d);
  if (!(wide < target::max())) return target::max();  // nor is what is no number
  if (wide <= target::min()) return target::min();
  return std::chrono::duration_cast<target>(d);
}
// `d` after `t`; the end of time, which never comes, where the clock cannot say it.
template <class Rep, class Period>
constexpr std::chrono::steady_clock::time_point after(std::chrono::steady_clock::time_point t,
                                                      std::chrono::duration<Rep, Period> d) noexcept {
  using time_point = std::chrono::steady_clock::time_point;
  const std::chrono::steady_clock::duration by = saturated(d);
  return by > by.zero() && t > time_point::max() - by ? time_point::max() : t + by;
}

// The time by which this thread's runtime goes: steady_clock's, but in a simulation; without a runtime,
// steady_clock's.
std::chrono::steady_clock::time_point loop_time() noexcept;

// Stops `scope` with errc::timed_out at `when`, unless it is destroyed before. `asked`: the time that the
// user gave, for the text; nothing where it was a point in time. On the loop of this thread's runtime, which
// it keeps going; throws errc::wrong_thread where there is none.
class deadline {
 public:
  deadline(stop_scope& scope, std::chrono::steady_clock::time_point when,
           std::optional<std::chrono::steady_clock::duration> asked);
  deadline(const deadline&) = delete;
  deadline& operator=(const deadline&) = delete;
  ~deadline();

  bool passed() const noexcept { return passed_; }

 private:
  stop_scope& scope_;
  const std::optional<std::chrono::steady_clock::duration> asked_;
  bool passed_ = false;
  void* loop_;
  alignas(std::max_align_t) std::byte timer_[48];
};

}  // namespace tutti::detail
