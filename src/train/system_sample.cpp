// SPDX-License-Identifier: Apache-2.0
#include "train/system_sample.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace tutti::train {
namespace {

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

system_sampler::system_sampler() : cpu_seconds_(cpu_seconds()), at_(std::chrono::steady_clock::now()) {}

std::optional<system_sample> system_sampler::take() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0, resident = 0;
  if (!(statm >> pages >> resident)) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  const double used = cpu_seconds();
  system_sample s;
  s.cpu_percent = 100 * (used - cpu_seconds_) / std::max(std::chrono::duration<double>(now - at_).count(), 1e-3);
  s.memory_mib = resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
  ::getloadavg(&s.machine_load, 1);
  cpu_seconds_ = used;
  at_ = now;
  return s;
}

}  // namespace tutti::train
