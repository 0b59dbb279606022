// SPDX-License-Identifier: Apache-2.0
// Notices when the loop thread computes instead of communicating.
//
// The loop reads the clock every few hundred rounds anyway. A gap between two readings in which the thread used
// the processor was a computation. Otherwise it was the scheduler's doing, and is no stall.
#pragma once

#include "core/platform.hpp"

#include <cstdint>

namespace tutti::core {

struct stall_counters {
  std::uint64_t stalls = 0;
  duration longest{};
};

class stall_watch {
 public:
  // Shorter ones are not counted: they cannot be told from the loop's own work.
  static constexpr duration least = std::chrono::milliseconds(10);

  stall_watch();

  // Records that the loop is working at this time; `waiting` says whether operations are pending.
  void check(time_point now, bool waiting) noexcept {
    if (last_ != never && now - last_ >= least) {
      found(now, waiting);
    } else if (now - sampled_ >= least / 2) {
      sample(now);
    }
    last_ = now;
  }
  // Records that the loop sleeps until the next check.
  void pause() noexcept { last_ = never; }
  // Records that other code ran on the loop thread from `from` to `to`, and used the processor for `used`.
  void note(time_point from, time_point to, duration used, bool waiting) noexcept;

  const stall_counters& counters() const noexcept { return counters_; }
  static duration processor_time() noexcept;  // of this thread

 private:
  void sample(time_point now) noexcept;
  void found(time_point now, bool waiting) noexcept;

  stall_counters counters_;
  static constexpr time_point never{};
  time_point last_ = never;
  time_point sampled_ = never;
  duration used_{};     // processor time at `sampled_`
  duration warn_at_{};  // the next stall to be warned of; zero: none
};

}  // namespace tutti::core
