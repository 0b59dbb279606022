// SPDX-License-Identifier: Apache-2.0
#include "core/host_map.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>

namespace tutti::core {

host_map::host_map(std::span<const int> hosts) {
  const std::size_t size = hosts.size();
  const auto end_of_host = [&](std::size_t from) {
    std::size_t end = from;
    while (end < size && hosts[end] == hosts[from]) ++end;
    return end;
  };
  for (std::size_t at = 0; at < size;) {
    std::size_t end = end_of_host(at);
    const std::size_t ranks = end - at;
    run next{hosts[at], 0, 1, static_cast<int>(ranks)};
    while (end < size) {
      const int step = hosts[end] - hosts[end - 1];
      if ((next.hosts > 1 && step != next.step) || end_of_host(end) - end != ranks) break;
      next.step = step;
      ++next.hosts;
      end += ranks;
    }
    add(next);
    at = end;
  }
}

host_map::host_map(std::vector<run> runs, int ranks) {
  std::int64_t size = 0;
  for (const run& each : runs) {
    const std::int64_t last = each.first + std::int64_t{each.step} * (std::int64_t{each.hosts} - 1);
    size += std::int64_t{each.hosts} * each.ranks;
    if (each.hosts < 1 || each.ranks < 1 || size > ranks || each.first < 0 || each.first >= ranks ||
        last < 0 || last >= ranks)
      throw std::invalid_argument("no map of hosts");
    add(each);
  }
  if (size != ranks) throw std::invalid_argument("no map of hosts");
}

void host_map::add(const run& next) {
  starts_.push_back(size_);
  runs_.push_back(next);
  size_ += next.hosts * next.ranks;
  hosts_ = std::max({hosts_, next.first + 1, next.first + next.step * (next.hosts - 1) + 1});
}

int host_map::host_of(int rank) const noexcept {
  const auto after = std::ranges::upper_bound(starts_, rank);
  const auto at = static_cast<std::size_t>(after - starts_.begin()) - 1;
  const run& in = runs_[at];
  return in.first + in.step * ((rank - starts_[at]) / in.ranks);
}

}  // namespace tutti::core
