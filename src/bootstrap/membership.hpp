// SPDX-License-Identifier: Apache-2.0
// membership: who is in a world that grows and shrinks. One place decides: the launcher of node 0, which
// knows the live processes and hears of those that come to the next world. No input or output.
#pragma once

#include "core/world_info.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti::bootstrap {

// What the next world needs of the present one, where nodes are silent and their ranks may still run.
// majority: more members that come than members that may still run elsewhere. none: one is enough.
enum class quorum { none, majority };

class membership {
 public:
  // No world has fewer nodes than `least_nodes`.
  explicit membership(int least_nodes, quorum needed = quorum::none)
      : least_nodes_(least_nodes), quorum_(needed) {}

  // A process that wants to be in the next world. `start` counts the starts of its rank, from 0; `place` is
  // where its answer goes.
  struct arrival {
    int number = 0;
    int start = 0;
    std::uint64_t place = 0;
    core::endpoint_record record;
  };
  struct world {
    std::int64_t epoch = 0;
    std::vector<arrival> members;  // by rank
  };

  // Another launcher has decided so far, up to this epoch; these are the members of the world that runs. Which nodes
  // have them is not known yet.
  static constexpr int unknown_node = -1;
  void resume(std::int64_t epoch, const std::vector<arrival>& members);

  // The process of rank `number` of a node has been started: for the first time, or again.
  void started(int node, int number, int start);
  // It has ended; `well`: with exit code 0.
  void ended(int number, int start, bool well);
  // The launcher of a node has ended, and its processes with it.
  void node_ended(int node);
  // It is silent: its processes are in no further world, but may still run in the present one, for as long as
  // that launcher takes to notice and to end them. The number of this loss.
  int node_lost(int node);
  // That time has passed.
  void overdue(int loss);
  // Records an arrival. An earlier arrival of the same process no longer counts. One of a process that is
  // known to have ended is ignored.
  void came(arrival who);
  // The process with this place does not wait any longer.
  void withdraw(std::uint64_t place);

  // Returns the next world as soon as there is one: when all living members of the present one have come.
  // (The first one: when all processes have.) Members keep their order and come first. Then come the
  // newcomers, by number, of each node all of whose ranks have come.
  std::optional<world> decide();

  // The number of ranks that decide() would admit.
  int newcomers() const noexcept { return newcomers_; }
  // Whether members of the present world live.
  bool runs() const noexcept { return living_ > 0; }
  // Whether all members of the present world have ended, and one of them successfully.
  bool over() const;
  // Says why there is no next world yet; empty if no rank waits for one.
  std::string obstacle() const;
  // Why there will never be a next world for want of a quorum, as a sentence; empty: there may be one.
  std::string minority() const;
  std::int64_t epoch() const noexcept { return epoch_; }

 private:
  struct process {
    int node = 0;
    int start = 0;
    bool alive = true;
    bool ended_well = false;
    bool member = false;
    std::optional<arrival> waits = {};
  };
  struct newcomers_of_node {
    int all = 0;
    int waiting = 0;
    int complete() const noexcept { return all == waiting ? all : 0; }
  };
  template <class F>
  void change(int number, const F& f);
  void count(int number, const process& p, int by);
  // Members of silent nodes.
  int may_still_run() const noexcept { return static_cast<int>(doubts_.size()); }
  std::vector<int> next_members() const;  // living members, then newcomers of complete nodes

  const int least_nodes_;
  const quorum quorum_;
  std::int64_t epoch_ = -1;
  std::map<int, process> processes_;
  std::vector<int> world_;
  std::multiset<int> doubts_;  // for each member that may still run, with which loss its node was silent
  int losses_ = 0;
  // Counted along, so that an arrival costs no look at all processes.
  std::set<int> absent_;  // who have to come before there is a next world, and have not
  std::map<int, newcomers_of_node> newcomers_of_;
  int newcomers_ = 0;
  int living_ = 0;  // members
};

}  // namespace tutti::bootstrap
