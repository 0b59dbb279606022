// SPDX-License-Identifier: Apache-2.0
// Ranks that time out do so together, and have the same to tell. One of them says what all wait for; the
// others change nothing before it has read that.
#pragma once

#include "base/cycles.hpp"
#include "flight/layout.hpp"

#include <atomic>
#include <cstdint>

namespace tutti::flight {

// May lie in memory that processes share; zeros are a valid one.
class report_turn {
 public:
  // True for the first who asks within `quiet_ns`: it reads what is on record, and calls has_read().
  bool take(std::int64_t quiet_ns) noexcept {
    const auto now = static_cast<std::uint64_t>(base::steady_ns());
    std::uint64_t last = taken_.load(std::memory_order_acquire);
    // Who took it may have looked at the clock after this one.
    if (last != 0 && static_cast<std::int64_t>(now - last) <= quiet_ns) return false;
    return taken_.compare_exchange_strong(last, now, std::memory_order_acq_rel);
  }
  void has_read() noexcept { read_.store(taken_.load(std::memory_order_relaxed), std::memory_order_release); }
  // Somebody who has taken it has not read yet. Whoever waits for that does so for some milliseconds at most:
  // it may have died.
  bool being_read() const noexcept {
    return taken_.load(std::memory_order_acquire) != read_.load(std::memory_order_acquire);
  }

 private:
  word taken_ = 0;  // when, by the steady clock, in nanoseconds
  word read_ = 0;   // the turn that is over
};

}  // namespace tutti::flight
