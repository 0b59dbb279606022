// SPDX-License-Identifier: Apache-2.0
// Launches of tutti, of its rivals and of the limit, in the order of launching: who is faster, by how much,
// and whether that is what was aimed at.
#pragma once

#include "common/report.hpp"
#include "common/statistics.hpp"
#include "common/targets.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace perf {

// One launch. Peers whose name begins with "tutti" are our own; "limit" is what the machine allows; the
// others are rivals.
struct launch {
  std::string peer;  // "tutti", "tutti-shared", "openmpi", "gloo-ring", "limit"
  report what;
};

// What one case is about: all launches are of the same command on as many ranks, bound alike.
struct benchmark {
  std::string name;  // "all_reduce.4.shm"
  std::vector<launch> launches;
};

// Of one peer at one size, in one place.
struct peer_value {
  std::string peer;
  summary us;         // of the launches' medians, or means; see uses_means
  double cpu_us = 0;  // median over the launches
  int launches = 0;
};

// A launch of a rival is compared with our last one before it only, and only when both saw one and the same
// placement before and after (see placement.hpp). Every placement that was met has a row of its own; pairs
// that saw several are left out.
struct comparison_row {
  std::size_t bytes = 0;
  std::string place;  // "C"; "mixed": no pair was clean, so this row is of all; empty: no rival
  peer_value own;
  peer_value rival;                // the fastest here; its name is empty when there is none
  std::vector<peer_value> others;  // of all rivals, fastest first
  summary ratio;                   // own / rival, over the pairs
  int pairs = 0;                   // that the ratio is of
  int left_out = 0;                // of this size, in no row; said in the first row of the size
  bool complete =
      true;  // every rival was seen in this place; or a target could be met in the absence of the best
  double limit_us = 0;  // 0: not known in this place
  bool good = true;     // all contents were right, in all launches of this size
  struct verdict {
    target aim;
    double reached = 0;   // the ratio that the target is about
    std::string against;  // the peer; empty: not every rival has a launch in this place, so it is not met
    bool met = false;
  };
  std::vector<verdict> verdicts;
};

// Medians hide the stalls of ranks that wait for each other's time slices: where ranks outnumber cores, means
// count.
bool uses_means(const benchmark& of) noexcept;

// One row for each size, place and peer of ours.
std::vector<comparison_row> compare(const benchmark& of);

// The rivals that lack a launch in the main place which can be compared, at a size that they have.
std::vector<std::string> unpaired(const benchmark& of);

// Of one peer, one size and one way of computing: medians over the launches. See overlap_row.
struct overlap_value {
  std::string peer;
  overlap_row median;
  int launches = 0;
  bool good = true;
  std::vector<comparison_row::verdict> verdicts;
};
std::vector<overlap_value> overlaps_of(const benchmark& of);

// The place where most was measured; unknown_place when there is none.
char main_place(const benchmark& of) noexcept;

}  // namespace perf
