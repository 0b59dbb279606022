// SPDX-License-Identifier: Apache-2.0
// What this process takes of its machine.
#pragma once

#include <chrono>
#include <optional>

namespace tutti::train {

struct system_sample {
  double cpu_percent = 0;     // of one core, since the last sample
  double memory_mib = 0;      // resident
  double machine_load = 0;    // runnable processes, as of the last minute
};

class system_sampler {
 public:
  system_sampler();
  // Nothing: /proc cannot be read.
  std::optional<system_sample> take();

 private:
  double cpu_seconds_ = 0;
  std::chrono::steady_clock::time_point at_;
};

}  // namespace tutti::train
