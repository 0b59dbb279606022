// SPDX-License-Identifier: Apache-2.0
// wait_graph: which rank waits for which, derived from the pending operations of all of them. Pure data.
#pragma once

#include "flight/snapshot.hpp"

#include <map>
#include <utility>
#include <vector>

namespace tutti::flight {

// A collective that some ranks are in and others have not called.
struct missing_ranks {
  const operation_snapshot* operation;  // of one rank that waits in it
  const rank_snapshot* of;
  std::vector<int> ranks;  // of the world
};

class wait_graph {
 public:
  explicit wait_graph(const std::vector<rank_snapshot>& ranks);  // which must outlive it

  struct edge {
    int to;  // rank of the world
    const operation_snapshot* why;
  };
  // None for a rank that is stopped, computes or has gone: its pending operations do not hold it up.
  const std::vector<edge>& edges_of(int rank) const;
  // The ranks that the operation waits for, if known; empty: unknown, or its message is on its way.
  std::vector<int> waited_for(const rank_snapshot& of, const operation_snapshot& operation) const;
  // Whether its other half is pending, too.
  bool has_met(const rank_snapshot& of, const operation_snapshot& operation) const;

  const std::vector<missing_ranks>& missing() const noexcept { return missing_; }
  // Each circle is a list of ranks: every one waits for the next, and the last for the first.
  std::vector<std::vector<int>> circles() const;
  // Ranks that others wait for, directly or through others, and that wait for none themselves; with the
  // waiting ranks.
  std::vector<std::pair<int, std::vector<int>>> culprits() const;

  const rank_snapshot* find(int rank) const;
  int world_rank(std::uint32_t communicator, int rank) const;  // -1: not known

 private:
  bool works_in(int rank, const operation_snapshot& operation) const;

  std::map<int, const rank_snapshot*> by_rank_;
  std::map<std::pair<std::uint32_t, int>, int> world_ranks_;
  std::map<int, std::vector<edge>> edges_;
  std::vector<missing_ranks> missing_;
};

// What a rank is seen to do.
enum class rank_condition {
  not_there,  // no rank has written yet
  joining,
  left,
  failed,  // its main has thrown
  gone,    // its process has ended
  stopped,
  computing,   // its loop has not turned for a while, and its thread runs
  blocked,     // likewise, but its thread sleeps
  in_handler,  // the loop sleeps, but its thread runs
  working,     // no problem: it waits for its operations, or for nothing of tutti's
};
rank_condition condition_of(const rank_snapshot& rank);

// The loop turns at least this often, unless something else has its thread.
inline constexpr std::int64_t longest_turn_ns = 300'000'000;

}  // namespace tutti::flight
