// SPDX-License-Identifier: Apache-2.0
// Time and randomness behind an interface, so that a simulator can run the same engine under virtual time.
#pragma once

#include <chrono>
#include <cstdint>

namespace tutti::core {

using clock = std::chrono::steady_clock;
using time_point = clock::time_point;
using duration = clock::duration;

class platform {
 public:
  virtual ~platform() = default;
  virtual time_point now() noexcept = 0;
  virtual std::uint64_t random() noexcept = 0;

  // The machine's monotonic clock and getrandom().
  static platform& real() noexcept;
};

}  // namespace tutti::core
