// SPDX-License-Identifier: Apache-2.0
// Measures the time of a rank by phase.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace train_digits {

enum class phase : std::size_t { compute, communication, other };

// There is always exactly one current phase, so that the phases add up to the total time.
class phase_clock {
 public:
  void enter(phase next) noexcept {
    const auto now = std::chrono::steady_clock::now();
    seconds_[static_cast<std::size_t>(current_)] += std::chrono::duration<double>(now - since_).count();
    current_ = next;
    since_ = now;
  }
  // Seconds by phase, up to the last call of enter.
  const std::array<double, 3>& seconds() const noexcept { return seconds_; }

 private:
  std::array<double, 3> seconds_{};
  phase current_ = phase::other;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

}  // namespace train_digits
