// SPDX-License-Identifier: Apache-2.0
// Two programs, several launches each, paired in the order of launching, size by size.
#pragma once

#include "common/report.hpp"
#include "common/statistics.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace perf {

// Launches are to be compared with their own neighbours in time only, and only when both saw one and the same placement
// before and after (see placement.hpp): the others are counted and left out, or used alone when nothing better is there.
struct comparison_row {
  std::size_t bytes = 0;
  summary own_us, rival_us;      // of the launches' medians
  summary ratio;                 // own / rival, of the pairs' medians
  double ratio_of_means = 0;     // the median over the pairs; unlike medians, means do not hide stalls
  double own_cpu_us = 0, rival_cpu_us = 0;   // median over the launches
  int pairs = 0;                 // those that `ratio` is of
  int left_out = 0;              // pairs of different or changing placements
  std::string places;            // of the pairs used: "C", "CX"; "mixed": no pair was clean, so all were used
  bool good = true;              // all contents were right, in all launches
};

// `own` and `rival` have one element per launch, in the order of launching. Without rivals: only the own half.
std::vector<comparison_row> compare(const std::vector<report>& own, const std::vector<report>& rival);

// A heading, what was measured, and the table.
std::string markdown_of(const std::vector<report>& own, const std::vector<report>& rival);

}  // namespace perf
