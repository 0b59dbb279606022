// SPDX-License-Identifier: Apache-2.0
#include "track/machine_sample.hpp"

#include "base/text.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace tutti::track {
namespace {

double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// The part of NVML's interface that is used here, as nvml.h declares it: its names are stable, and nothing is
// linked.
using device_handle = void*;
struct utilisation {
  unsigned gpu = 0, memory = 0;  // percent
};
struct memory_use {
  unsigned long long total = 0, free = 0, used = 0;  // bytes
};
constexpr int success = 0;

}  // namespace

process_sampler::process_sampler()
    : statm_(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC)),
      cpu_seconds_(cpu_seconds()),
      at_(std::chrono::steady_clock::now()) {}

std::optional<process_sample> process_sampler::take() {
  // "size resident shared ...", in pages.
  char text[128];
  const ssize_t n = statm_ ? ::pread(statm_.get(), text, sizeof text, 0) : -1;
  const char* const end = text + std::max<ssize_t>(n, 0);
  const char* const second = std::find(static_cast<const char*>(text), end, ' ');
  long resident = 0;
  if (second == end || std::from_chars(second + 1, end, resident).ec != std::errc()) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  const double used = cpu_seconds();
  process_sample s;
  s.cpu_percent =
      100 * (used - cpu_seconds_) / std::max(std::chrono::duration<double>(now - at_).count(), 1e-6);
  s.memory_mib = static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
  cpu_seconds_ = used;
  at_ = now;
  return s;
}

std::optional<std::string> device_of(int local_rank, const std::string& visible, int devices) {
  if (visible.empty()) {
    if (devices <= 0) return std::nullopt;
    return std::to_string(local_rank % devices);
  }
  std::vector<std::string> entries;
  std::istringstream words(visible);
  for (std::string word; std::getline(words, word, ',');) {
    if (word.empty() || word == "-1") break;  // entries behind it are not visible to CUDA either
    entries.push_back(word);
  }
  if (entries.empty()) return std::nullopt;
  return entries[static_cast<std::size_t>(local_rank) % entries.size()];
}

struct gpu_sampler::library {
  explicit library(const std::string& file) : handle(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  library(const library&) = delete;
  library& operator=(const library&) = delete;
  ~library() {
    if (started && shut_down != nullptr) shut_down();
    if (handle != nullptr) ::dlclose(handle);
  }
  template <class F>
  bool find(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(::dlsym(handle, name));
    return function != nullptr;
  }

  void* handle;
  bool started = false;
  int (*init)() = nullptr;
  int (*shut_down)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, device_handle*) = nullptr;
  int (*by_uuid)(const char*, device_handle*) = nullptr;
  int (*rates)(device_handle, utilisation*) = nullptr;
  int (*memory)(device_handle, memory_use*) = nullptr;
  device_handle device = nullptr;
};

gpu_sampler::gpu_sampler(int local_rank, const std::string& file) {
  auto l = std::make_unique<library>(file);
  if (l->handle == nullptr || !l->find(l->init, "nvmlInit_v2") || !l->find(l->shut_down, "nvmlShutdown") ||
      !l->find(l->count, "nvmlDeviceGetCount_v2") || !l->find(l->by_index, "nvmlDeviceGetHandleByIndex_v2") ||
      !l->find(l->by_uuid, "nvmlDeviceGetHandleByUUID") ||
      !l->find(l->rates, "nvmlDeviceGetUtilizationRates") || !l->find(l->memory, "nvmlDeviceGetMemoryInfo"))
    return;
  l->started = l->init() == success;
  unsigned devices = 0;
  if (!l->started || l->count(&devices) != success) return;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && *visible == '\0') return;  // none
  const std::optional<std::string> mine =
      device_of(local_rank, visible != nullptr ? visible : "", static_cast<int>(devices));
  if (!mine) return;
  const auto index = base::to_number<unsigned>(*mine);
  const int found = index ? l->by_index(*index, &l->device) : l->by_uuid(mine->c_str(), &l->device);
  if (found == success) library_ = std::move(l);
}

gpu_sampler::~gpu_sampler() = default;

std::optional<gpu_sample> gpu_sampler::take() {
  utilisation rates;
  memory_use memory;
  if (!library_ || library_->rates(library_->device, &rates) != success ||
      library_->memory(library_->device, &memory) != success)
    return std::nullopt;
  gpu_sample s;
  s.busy_percent = rates.gpu;
  s.memory_mib = static_cast<double>(memory.used) / (1 << 20);
  return s;
}

}  // namespace tutti::track
