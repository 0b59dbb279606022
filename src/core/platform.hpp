// SPDX-License-Identifier: Apache-2.0
// Time and randomness behind an interface, so that a simulator can run the same engine under virtual time.
#pragma once

#include "base/hmac.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>

namespace tutti::core {

using clock = std::chrono::steady_clock;
using time_point = clock::time_point;
using duration = clock::duration;

class platform {
 public:
  virtual ~platform() = default;
  virtual time_point now() noexcept { return clock::now(); }
  virtual std::uint64_t random() noexcept {
    std::array<std::uint8_t, sizeof(std::uint64_t)> bytes{};
    base::fill_random(bytes);
    return std::bit_cast<std::uint64_t>(bytes);
  }

  // The machine's monotonic clock and getrandom().
  static platform& real() noexcept {
    static platform instance;
    return instance;
  }
};

}  // namespace tutti::core
