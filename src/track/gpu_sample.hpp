// SPDX-License-Identifier: Apache-2.0
// What the GPU of this rank does, where there is one: by NVIDIA's management library, opened at run time.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace tutti::track {

struct gpu_sample {
  double busy_percent = 0;  // of the time since the driver's last look, by any process
  double memory_mib = 0;    // in use, by any process
};

// Which device is a rank's, in the driver's words: a number, or a name that begins with "GPU-". `visible` is
// CUDA_VISIBLE_DEVICES, whose entries are dealt to the ranks of a host in turn; empty: all `devices` are.
// Nothing: there is none for it.
std::optional<std::string> device_of(int local_rank, const std::string& visible, int devices);

class gpu_sampler {
 public:
  // Of the device of this rank among those of its host. May take a second, for a driver that sleeps.
  explicit gpu_sampler(int local_rank, const std::string& library = "libnvidia-ml.so.1");
  gpu_sampler(const gpu_sampler&) = delete;
  gpu_sampler& operator=(const gpu_sampler&) = delete;
  ~gpu_sampler();

  // Nothing: there is no device, or it does not say.
  std::optional<gpu_sample> take();

 private:
  struct library;
  std::unique_ptr<library> library_;
};

}  // namespace tutti::track
