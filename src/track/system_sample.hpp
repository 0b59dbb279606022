// SPDX-License-Identifier: Apache-2.0
// system_sample: this process's use of its machine.
#pragma once

#include "base/unique_fd.hpp"

#include <chrono>
#include <optional>

namespace tutti::track {

struct process_sample {
  double cpu_percent = 0;  // of one core, since the last sample
  double memory_mib = 0;   // resident
};

class process_sampler {
 public:
  process_sampler();
  // Two system calls, some microseconds. Empty if /proc cannot be read.
  std::optional<process_sample> take();

 private:
  base::unique_fd statm_;
  double cpu_seconds_ = 0;
  std::chrono::steady_clock::time_point at_;
};

}  // namespace tutti::track
