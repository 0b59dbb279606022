// SPDX-License-Identifier: Apache-2.0
// report_turn: ranks that time out do so together, with the same to report. One of them says what all wait
// for; the others change nothing before it has read that.
#pragma once

#include "base/cycles.hpp"
#include "flight/layout.hpp"

#include <atomic>
#include <cstdint>

namespace tutti::flight {

// May lie in memory shared by processes; all zeros are a valid object.
class report_turn {
 public:
  // Returns true for the first caller within `quiet_ns`: it reads the recordings and calls has_read().
  bool take(std::int64_t quiet_ns) noexcept {
    const auto now = static_cast<std::uint64_t>(base::steady_ns());
    std::uint64_t last = taken_.load(std::memory_order_acquire);
    // The current holder may have read the clock later than this caller.
    if (last != 0 && static_cast<std::int64_t>(now - last) <= quiet_ns) return false;
    return taken_.compare_exchange_strong(last, now, std::memory_order_acq_rel);
  }
  void has_read() noexcept { read_.store(taken_.load(std::memory_order_relaxed), std::memory_order_release); }
  // Whether the holder has not yet read. Wait for it only some milliseconds: it may have died.
  bool being_read() const noexcept {
    return taken_.load(std::memory_order_acquire) != read_.load(std::memory_order_acquire);
  }

 private:
  word taken_ = 0;  // time by the steady clock, in nanoseconds
  word read_ = 0;   // the turn that is over
};

}  // namespace tutti::flight
