// SPDX-License-Identifier: Apache-2.0
// Samples of a rank's machine: this process's use of it, and the use of this rank's GPU, if there is one. The
// latter is from NVIDIA's management library, opened at run time.
#pragma once

#include "base/unique_fd.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>

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

struct gpu_sample {
  double busy_percent = 0;  // since the driver's last sample, by any process
  double memory_mib = 0;    // in use, by any process
};

// Returns the device of a rank, as the driver names it: a number, or a name that starts with "GPU-".
// `visible` is CUDA_VISIBLE_DEVICES, whose entries are assigned to the ranks of a host in turn; empty: all
// `devices`. Empty if there is none for it.
std::optional<std::string> device_of(int local_rank, const std::string& visible, int devices);

class gpu_sampler {
 public:
  // Samples the device of this rank among those of its host. May take a second if the driver sleeps.
  explicit gpu_sampler(int local_rank, const std::string& library = "libnvidia-ml.so.1");
  gpu_sampler(const gpu_sampler&) = delete;
  gpu_sampler& operator=(const gpu_sampler&) = delete;
  ~gpu_sampler();

  // Empty if there is no device, or it does not say.
  std::optional<gpu_sample> take();

 private:
  struct library;
  std::unique_ptr<library> library_;
};

}  // namespace tutti::track
