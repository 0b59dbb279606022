// SPDX-License-Identifier: Apache-2.0
// host_map: on which host each rank is. Where ranks are numbered host by host, or in turns, it takes some bytes for any
// number of ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::core {

class host_map {
 public:
  // Ranks that follow each other: `ranks` on the host `first`, as many on the host `first` + `step`, and so on, on `hosts`
  // hosts.
  struct run {
    int first = 0;
    int step = 0;
    int hosts = 0;
    int ranks = 0;
  };

  host_map() = default;
  // `hosts` by rank.
  explicit host_map(std::span<const int> hosts);
  // As runs() returns them, for a world of this many ranks. Throws std::invalid_argument for others.
  host_map(std::vector<run> runs, int ranks);

  int size() const noexcept { return size_; }    // in ranks
  int hosts() const noexcept { return hosts_; }  // the highest number, plus one
  int host_of(int rank) const noexcept;
  const std::vector<run>& runs() const noexcept { return runs_; }

 private:
  void add(const run& next);

  std::vector<run> runs_;
  std::vector<int> starts_;  // the first rank of each run
  int size_ = 0;
  int hosts_ = 0;
};

}  // namespace tutti::core
