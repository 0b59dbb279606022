// SPDX-License-Identifier: Apache-2.0
// Notices when the loop thread computes instead of communicating.
//
// The loop looks at the clock anyway, every few hundred rounds. A gap between two looks in which the thread
// used the processor was somebody's computation; one in which it did not was the scheduler's doing, and is no
// stall.
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

  // The loop is at work, at this time; `waiting`: operations are pending.
  void check(time_point now, bool waiting) noexcept {
    if (last_ != never && now - last_ >= least) {
      found(now, waiting);
    } else if (now - sampled_ >= least / 2) {
      sample(now);
    }
    last_ = now;
  }
  // The loop sleeps until the next look.
  void pause() noexcept { last_ = never; }
  // Something else than the loop ran on its thread from `from` to `to`, using the processor for `used`.
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
  duration warn_at_{};  // the next to be warned of; zero: none
};

}  // namespace tutti::core
