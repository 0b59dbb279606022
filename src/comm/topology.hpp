// SPDX-License-Identifier: Apache-2.0
// topology: which ranks of a communicator share a host. Hosts are numbered by their lowest rank.
#pragma once

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

namespace tutti::comm {

struct topology {
  topology() = default;
  // `their_hosts` by rank; ranks with equal numbers share a host.
  topology(std::span<const int> their_hosts, int rank) {
    std::unordered_map<int, int> numbers;
    std::vector<std::vector<int>> ranks;  // by host
    host_of.reserve(their_hosts.size());
    for (std::size_t r = 0; r < their_hosts.size(); ++r) {
      const auto [at, is_new] = numbers.try_emplace(their_hosts[r], static_cast<int>(leaders.size()));
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

  int hosts() const noexcept { return static_cast<int>(leaders.size()); }
  // Whether there are several hosts, and a host with several ranks.
  bool hierarchy() const noexcept { return hosts() > 1 && leaders.size() < host_of.size(); }

  std::vector<int> host_of;  // by rank
  std::vector<int> leaders;  // the lowest rank of each host
  std::vector<int> local;    // the ranks of this rank's host, ascending
  std::vector<int> column;   // for each host the rank with this rank's place there; only if `even`
  int host = 0;              // of this rank
  int local_rank = 0;        // this rank's place in `local`
  bool even = true;          // all hosts have the same number of ranks
};

}  // namespace tutti::comm
