// SPDX-License-Identifier: Apache-2.0
#include "core/spin_policy.hpp"

#include "base/env.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <thread>

namespace tutti::core {

spin_policy spin_policy::choose(int local_ranks, int usable) {
  spin_policy policy;
  policy.yields = local_ranks > usable;
  if (const auto wanted = base::env_integer("TUTTI_SPIN_US", 0, 1'000'000'000))
    policy.budget = std::chrono::microseconds(*wanted);
  return policy;
}

namespace {

// Whole cores of the cgroup's quota, or a large number without one.
int quota_cores() noexcept {
  long long quota = 0, period = 0;
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return 1 << 20;
  return static_cast<int>(std::max(1LL, quota / period));
}

}  // namespace

std::string cpu_mask() {
  for (std::size_t cpus = 1024; cpus <= (1u << 20); cpus *= 2) {
    std::vector<unsigned long> mask(cpus / (8 * sizeof(unsigned long)));
    const auto set = reinterpret_cast<cpu_set_t*>(mask.data());
    const std::size_t bytes = mask.size() * sizeof(unsigned long);
    if (::sched_getaffinity(0, bytes, set) != 0) {
      if (errno == EINVAL) continue;  // more cores than that
      return {};
    }
    std::string digits;
    for (std::size_t i = mask.size(); i-- > 0;) digits += fmt::format("{:0{}x}", mask[i], 2 * sizeof mask[i]);
    return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
  }
  return {};
}

int usable_cores(const std::vector<std::string>& masks) noexcept {
  int cores = 0;
  for (std::size_t place = 0;; ++place) {
    unsigned together = 0;
    bool any = false;
    for (const std::string& mask : masks) {
      if (place >= mask.size()) continue;
      any = true;
      const char digit = mask[mask.size() - 1 - place];
      const std::size_t value = std::string_view("0123456789abcdef").find(digit);
      if (value < 16) together |= static_cast<unsigned>(value);
    }
    if (!any) break;
    cores += std::popcount(together);
  }
  return cores > 0 ? std::min(cores, quota_cores()) : usable_cores();
}

int usable_cores() noexcept {
  int cores = 0;
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) cores = CPU_COUNT(&mask);
  if (cores <= 0) cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return std::min(cores, quota_cores());
}

}  // namespace tutti::core
