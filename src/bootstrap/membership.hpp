// SPDX-License-Identifier: Apache-2.0
// membership: who is in a world that grows and shrinks. One place decides: the launcher of node 0, which
// knows the live processes and hears of those that come to the next world. No input or output.
#pragma once

#include "core/world_info.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::bootstrap {

class membership {
 public:
  // No world has fewer nodes than `least_nodes`.
  explicit membership(int least_nodes) : least_nodes_(least_nodes) {}

  // A process that wants to be in the next world. `start` counts the starts of its rank, from 0; `place` is
  // where its answer goes.
  struct arrival {
    int number = 0;
    int start = 0;
    std::size_t place = 0;
    core::endpoint_record record;
  };
  struct world {
    std::int64_t epoch = 0;
    std::vector<arrival> members;  // by rank
  };

  // The process of rank `number` of a node has been started: for the first time, or again.
  void started(int node, int number, int start);
  // It has ended; `well`: with exit code 0.
  void ended(int number, int start, bool well);
  void node_lost(int node);
  // Records an arrival. An earlier arrival of the same process no longer counts. One of a process that is
  // known to have ended is ignored.
  void came(arrival who);
  void withdrew(std::size_t place);
  std::vector<std::size_t> waiting() const;  // places

  // Returns the next world as soon as there is one: when all living members of the present one have come.
  // (The first one: when all processes have.) Members keep their order and come first. Then come the
  // newcomers, by number, of each node all of whose ranks have come.
  std::optional<world> decide();

  // The number of ranks that decide() would admit.
  int newcomers() const;
  // Whether all members of the present world have ended, and one of them successfully.
  bool over() const;
  // Says why there is no next world yet; empty if no rank waits for one.
  std::string obstacle() const;
  std::int64_t epoch() const noexcept { return epoch_; }

 private:
  struct process {
    int node = 0;
    int start = 0;
    bool alive = true;
    bool ended_well = false;
    bool member = false;
    std::optional<arrival> waits;
  };
  std::vector<int> living_members() const;
  std::vector<int> complete_newcomers() const;
  int nodes_of(const std::vector<int>& numbers) const;

  int least_nodes_;
  std::int64_t epoch_ = -1;
  std::map<int, process> processes_;
  std::vector<int> world_;
};

}  // namespace tutti::bootstrap
