// SPDX-License-Identifier: Apache-2.0
// Observations of all processes of a simulated elastic job, in the order of events, and their invariants.
#pragma once

#include "core/world_info.hpp"
#include "sim/elastic_job.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::test {

class elastic_ledger {
 public:
  elastic_ledger(int least_nodes, bool majority) : least_nodes_(least_nodes), majority_(majority) {}

  void may_die(int node) { may_die_.insert(node); }
  // Processes are named by endpoint_record::pid, nodes by ::host.
  void joined(std::int64_t process, const core::world_info& info);
  // A member of that world begins a step, numbered within it; and completes it: all members took part.
  void begins(int epoch, int step);
  void stepped(int epoch, int step);
  void gone(std::int64_t process) { gone_.insert(process); }
  bool is_gone(std::int64_t process) const { return gone_.contains(process); }
  // (process, node) of the members of the newest joined world that this process should have joined.
  std::vector<std::pair<std::int64_t, int>> missed_by(std::int64_t process, int* epoch) const;
  void finished() { ++finishes_; }
  void failed(const error& e);
  void wrong(const std::string& why) {
    if (complaint_.empty()) complaint_ = why;
  }

  int finishes() const noexcept { return finishes_; }
  const std::string& complaint() const noexcept { return complaint_; }
  std::string text() const;
  void add_to(elastic_census& all) const;

 private:
  struct world {
    std::uint64_t id = 0;
    std::vector<std::int64_t> members;
    std::vector<int> nodes;            // of each member
    std::uint64_t worked = 0;          // when its first step was completed
    std::vector<std::uint64_t> begun;  // for each step, when the first member began it
  };
  void check_new(int epoch, const world& w);

  const int least_nodes_;
  const bool majority_;
  std::uint64_t ticks_ = 0;
  std::map<int, world> worlds_;  // by epoch
  std::set<std::int64_t> gone_;
  std::set<int> may_die_;
  std::vector<std::string> failures_;
  std::string complaint_;
  int finishes_ = 0;
  int steps_ = 0;
  int minorities_ = 0;
  int held_back_ = 0;
};

}  // namespace tutti::test
