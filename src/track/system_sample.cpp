// SPDX-License-Identifier: Apache-2.0
#include "track/system_sample.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace tutti::track {
namespace {

double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

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

}  // namespace tutti::track
