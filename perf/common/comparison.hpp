// SPDX-License-Identifier: Apache-2.0
// Compares launches of tutti, its rivals and the limit of the machine, and judges the targets.
#pragma once

#include "common/report.hpp"
#include "common/statistics.hpp"
#include "common/targets.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace perf {

// One launch. Peers named "tutti..." are our own, "limit" is the limit of the machine, and all others are
// rivals.
struct launch {
  std::string peer;  // "tutti", "tutti-shared", "openmpi", "gloo-ring", "limit"
  report what;
};

// One case: all launches run the same command on the same number of ranks, with the same binding.
struct benchmark {
  std::string name;  // "all_reduce.4.shm"
  std::vector<launch> launches;
};

// Results of one peer at one size in one placement.
struct peer_value {
  std::string peer;
  summary us;         // of the launches' medians, or of their means; see uses_means
  double cpu_us = 0;  // median over the launches
  int launches = 0;
};

// A launch of a rival is compared only with our last launch before it, and only if both saw the same
// placement before and after (see placement.hpp). Each placement has a row of its own. Pairs that saw several
// placements are left out.
struct comparison_row {
  std::size_t bytes = 0;
  std::string place;  // "C"; "mixed": all pairs, because none had a single placement; empty: no rival
  peer_value own;
  peer_value rival;                // the fastest in this placement; its name is empty if there is none
  std::vector<peer_value> others;  // all rivals, fastest first
  summary ratio;                   // own / rival, over the pairs
  int pairs = 0;                   // number of pairs in `ratio`
  int left_out = 0;                // pairs of this size in no row; set in the first row of the size
  bool complete = true;  // every rival has a launch in this placement, so that targets can be judged
  double limit_us = 0;   // 0: not measured in this placement
  bool good = true;      // all contents were right, in all launches of this size
  struct verdict {
    target aim;
    double reached = 0;   // the ratio that the target limits
    std::string against;  // the peer; empty: a rival has no launch in this placement, so it is not met
    bool met = false;
  };
  std::vector<verdict> verdicts;
};

// Where ranks outnumber cores, they wait for each other's time slices. Medians hide these stalls, so means
// are compared.
bool uses_means(const benchmark& of) noexcept;

// One row for each size, placement and peer of ours.
std::vector<comparison_row> compare(const benchmark& of);

// The rivals without a comparable launch in the main placement, at a size that they support.
std::vector<std::string> unpaired(const benchmark& of);

// Results of one peer at one size and one mode: medians over the launches. See overlap_row.
struct overlap_value {
  std::string peer;
  overlap_row median;
  int launches = 0;
  bool good = true;
  std::vector<comparison_row::verdict> verdicts;
};
std::vector<overlap_value> overlaps_of(const benchmark& of);

// The placement with most measurements; unknown_place if there is none.
char main_place(const benchmark& of) noexcept;

}  // namespace perf
