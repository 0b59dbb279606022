// SPDX-License-Identifier: Apache-2.0
// topology: which ranks of a communicator share a host. Hosts are numbered by their lowest rank.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tutti::comm {

struct topology {
  topology() = default;
  // `host_ids` by rank; ranks with equal ids share a host.
  topology(std::span<const std::string> host_ids, int rank);

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
