// SPDX-License-Identifier: Apache-2.0
#include "comm/topology.hpp"

#include <algorithm>
#include <map>

namespace tutti::comm {

topology::topology(std::span<const std::string> host_ids, int rank) {
  std::map<std::string, int> numbers;
  std::vector<std::vector<int>> ranks;  // by host
  for (std::size_t r = 0; r < host_ids.size(); ++r) {
    const auto [at, is_new] = numbers.try_emplace(host_ids[r], static_cast<int>(leaders.size()));
    if (is_new) {
      leaders.push_back(static_cast<int>(r));
      ranks.emplace_back();
    }
    host_of.push_back(at->second);
    ranks[static_cast<std::size_t>(at->second)].push_back(static_cast<int>(r));
  }
  host = host_of[static_cast<std::size_t>(rank)];
  local = ranks[static_cast<std::size_t>(host)];
  local_rank = static_cast<int>(std::find(local.begin(), local.end(), rank) - local.begin());
  even = std::all_of(ranks.begin(), ranks.end(),
                     [&](const auto& of_host) { return of_host.size() == local.size(); });
  if (!even) return;
  for (const auto& of_host : ranks) column.push_back(of_host[static_cast<std::size_t>(local_rank)]);
}

}  // namespace tutti::comm
