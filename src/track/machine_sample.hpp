// SPDX-License-Identifier: Apache-2.0
// Samples of a rank's machine: this process's use of it, and the use of this rank's GPU, if there is one. The
// latter is from NVIDIA's management library, opened at run time.
#pragma once

#include "base/text.hpp"
#include "base/unique_fd.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tutti::track {

struct usage {
  double busy_percent = 0;
  double memory_mib = 0;
};

class process_sampler {
 public:
  // The use of one core since the last sample, and the resident memory. Some microseconds. Empty if /proc cannot be
  // read.
  std::optional<usage> take() {
    char text[128] = {};  // "size resident shared ...", in pages
    long size = 0, resident = 0;
    if (::pread(statm_.get(), text, sizeof text - 1, 0) <= 0 ||
        std::sscanf(text, "%ld %ld", &size, &resident) != 2)
      return std::nullopt;
    const auto now = std::chrono::steady_clock::now();
    const double used = cpu_seconds();
    const std::chrono::duration<double> since = now - std::exchange(at_, now);
    return usage{100 * (used - std::exchange(cpu_seconds_, used)) / std::max(since.count(), 1e-6),
                 static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20)};
  }

 private:
  static double cpu_seconds() {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
  }

  base::unique_fd statm_{::open("/proc/self/statm", O_RDONLY | O_CLOEXEC)};
  double cpu_seconds_ = cpu_seconds();
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

// Returns the device of a rank, as the driver names it: a number, or a name that starts with "GPU-".
// `visible` is CUDA_VISIBLE_DEVICES, whose entries are assigned to the ranks of a host in turn; empty: all
// `devices`. Empty if there is none for it.
inline std::optional<std::string> device_of(int local_rank, const std::string& visible, int devices) {
  if (visible.empty())
    return devices > 0 ? std::optional(std::to_string(local_rank % devices)) : std::nullopt;
  std::vector<std::string> entries;
  std::istringstream words(visible);
  for (std::string word; std::getline(words, word, ',');) {
    if (word.empty() || word == "-1") break;  // entries behind it are not visible to CUDA either
    entries.push_back(word);
  }
  if (entries.empty()) return std::nullopt;
  return entries[static_cast<std::size_t>(local_rank) % entries.size()];
}

class gpu_sampler {
 public:
  // Samples the device of this rank among those of its host. May take a second if the driver sleeps.
  explicit gpu_sampler(int local_rank, const std::string& library = "libnvidia-ml.so.1")
      : library_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    int (*init)() = nullptr;
    int (*count)(unsigned*) = nullptr;
    int (*by_index)(unsigned, void**) = nullptr;
    int (*by_uuid)(const char*, void**) = nullptr;
    if (library_ == nullptr || !find(init, "nvmlInit_v2") || !find(shut_down_, "nvmlShutdown") ||
        !find(count, "nvmlDeviceGetCount_v2") || !find(by_index, "nvmlDeviceGetHandleByIndex_v2") ||
        !find(by_uuid, "nvmlDeviceGetHandleByUUID") || !find(rates_, "nvmlDeviceGetUtilizationRates") ||
        !find(memory_, "nvmlDeviceGetMemoryInfo"))
      return;
    started_ = init() == success;
    unsigned devices = 0;
    if (!started_ || count(&devices) != success) return;
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible != nullptr && *visible == '\0') return;  // none
    const std::optional<std::string> mine =
        device_of(local_rank, visible != nullptr ? visible : "", static_cast<int>(devices));
    if (!mine) return;
    const auto index = base::to_number<unsigned>(*mine);
    found_ = (index ? by_index(*index, &device_) : by_uuid(mine->c_str(), &device_)) == success;
  }
  gpu_sampler(const gpu_sampler&) = delete;
  gpu_sampler& operator=(const gpu_sampler&) = delete;
  ~gpu_sampler() {
    if (started_) shut_down_();
    if (library_ != nullptr) ::dlclose(library_);
  }

  // The use since the driver's last sample, and the memory in use, both by any process. Empty if there is no
  // device, or it does not say.
  std::optional<usage> take() {
    utilisation rates;
    memory_use memory;
    if (!found_ || rates_(device_, &rates) != success || memory_(device_, &memory) != success)
      return std::nullopt;
    return usage{static_cast<double>(rates.gpu), static_cast<double>(memory.used) / (1 << 20)};
  }

 private:
  // The part of NVML's interface that is used here, as nvml.h declares it: its names are stable, and nothing is
  // linked.
  struct utilisation {
    unsigned gpu = 0, memory = 0;  // percent
  };
  struct memory_use {
    unsigned long long total = 0, free = 0, used = 0;  // bytes
  };
  static constexpr int success = 0;

  template <class F>
  bool find(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(::dlsym(library_, name));
    return function != nullptr;
  }

  void* library_;
  bool started_ = false;
  int (*shut_down_)() = nullptr;
  int (*rates_)(void*, utilisation*) = nullptr;
  int (*memory_)(void*, memory_use*) = nullptr;
  void* device_ = nullptr;
  bool found_ = false;
};

}  // namespace tutti::track
