// SPDX-License-Identifier: Apache-2.0
#include "base/cores.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <fstream>
#include <string_view>
#include <thread>

namespace tutti::base {
namespace {

// Whole cores of the cgroup's quota, or a large number without one.
int quota_cores() noexcept {
  long long quota = 0, period = 0;
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return 1 << 20;
  return static_cast<int>(std::max(1LL, quota / period));
}

int cores_of(const std::vector<std::string>& masks) {
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
    if (!any) return cores;
    cores += std::popcount(together);
  }
}

}  // namespace

std::string cpu_mask() {
  constexpr std::size_t cores = 1u << 20;  // more than any kernel has
  std::vector<unsigned long> mask(cores / (8 * sizeof(unsigned long)));
  const std::size_t bytes = mask.size() * sizeof(unsigned long);
  if (::sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) != 0) return {};
  while (!mask.empty() && mask.back() == 0) mask.pop_back();
  std::string digits;
  for (std::size_t i = mask.size(); i-- > 0;) digits += fmt::format("{:0{}x}", mask[i], 2 * sizeof mask[i]);
  return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
}

std::vector<int> cores_in(const std::string& mask) {
  std::vector<int> cores;
  int digit = 0;
  for (std::size_t i = mask.size(); i-- > 0;) {
    const std::size_t value = std::string_view("0123456789abcdef").find(mask[i]);
    if (value >= 16) continue;
    for (int bit = 0; bit < 4; ++bit)
      if ((value >> bit & 1) != 0) cores.push_back(4 * digit + bit);
    ++digit;
  }
  return cores;
}

std::string cache_of(const std::string& mask, const std::string& cores) {
  const std::vector<int> own = cores_in(mask);
  if (own.empty()) return {};
  std::string sharing;
  std::ifstream(fmt::format("{}/cpu{}/cache/index3/shared_cpu_map", cores, own.front())) >> sharing;
  const std::vector<int> all = cores_in(sharing);
  return std::ranges::includes(all, own) ? fmt::format("{}", all.front()) : "";
}

int usable_cores(const std::vector<std::string>& masks) noexcept {
  int cores = cores_of(masks);
  if (cores == 0) cores = cores_of({cpu_mask()});
  if (cores == 0) cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return std::min(cores, quota_cores());
}

}  // namespace tutti::base
