// SPDX-License-Identifier: Apache-2.0
// A time at which a scope is stopped.
#pragma once

#include <tutti/detail/stop_scope.hpp>

#include <chrono>
#include <cstddef>

namespace tutti::detail {

// The time by which this thread's runtime goes: steady_clock's, but in a simulation; without a runtime,
// steady_clock's.
std::chrono::steady_clock::time_point loop_time() noexcept;

// Stops `scope` with errc::timed_out at `when`, unless it is destroyed before. `asked`: the time that the
// user gave, for the text; zero where it was a point in time. On the loop of this thread's runtime, which it
// keeps going; throws errc::wrong_thread where there is none.
class deadline {
 public:
  deadline(stop_scope& scope, std::chrono::steady_clock::time_point when,
           std::chrono::steady_clock::duration asked);
  deadline(const deadline&) = delete;
  deadline& operator=(const deadline&) = delete;
  ~deadline();

  bool passed() const noexcept { return passed_; }

 private:
  stop_scope& scope_;
  const std::chrono::steady_clock::duration asked_;
  bool passed_ = false;
  void* loop_;
  alignas(std::max_align_t) std::byte timer_[48];
};

}  // namespace tutti::detail
