// SPDX-License-Identifier: Apache-2.0
// Explains who waits for whom: converts the ranks' recordings to a table for people.
#pragma once

#include "flight/snapshot.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti::flight {

// A collective that some ranks are in and others have not called.
struct missing_ranks {
  const operation_snapshot* operation;  // of one rank that waits in it
  const rank_snapshot* of;
  std::vector<int> ranks;  // of the world
};

// Which rank waits for which, derived from the pending operations of all of them. Pure data.
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

// Returns lines of text. They say what each rank does or waits for and since when, and which ranks have not
// called which collective. They name the ranks that the others wait for, and circles of waiting ranks.
// `ranks` may be part of a world.
std::string explain(const std::vector<rank_snapshot>& ranks);

const char* name_of_kind(std::uint8_t kind) noexcept;

// The last operations of a failed rank, the newest first, as lines with `indent` before each; empty if it had
// none.
std::string last_operations(const rank_snapshot& rank, std::size_t most, const std::string& indent);

// What each of them waits for, as "recv from rank 0, tag 7 on world, at train.cpp:81; barrier #2 on world".
std::vector<std::string> pending_operations(const std::vector<rank_snapshot>& ranks);

std::string seconds_text(std::int64_t ns);    // "350 ms", "12.1 s"
std::string bytes_text(std::uint64_t bytes);  // "64 bytes", "1.5 MiB"

}  // namespace tutti::flight
