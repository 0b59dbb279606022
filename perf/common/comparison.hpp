// SPDX-License-Identifier: Apache-2.0
// Two programs, several launches each, paired in the order of launching, size by size.
#pragma once

#include "common/report.hpp"
#include "common/statistics.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace perf {

// A launch is compared with its own neighbour in time only, and only when both saw one and the same placement
// before and after (see placement.hpp). Every placement that was met has a row of its own; pairs that saw
// several are left out.
struct comparison_row {
  std::size_t bytes = 0;
  std::string place;  // "C"; "mixed": no pair was clean, so this row is of all of them; empty: no rival
  int pairs = 0;      // that this row is of
  int left_out = 0;   // of this size, in no row; said in the first row of the size
  summary own_us, rival_us;   // of the launches' medians
  summary ratio;              // own / rival, of the pairs' medians
  double ratio_of_means = 0;  // the median over the pairs; unlike medians, means do not hide stalls
  double own_cpu_us = 0, rival_cpu_us = 0;  // median over the launches
  bool good = true;                         // all contents were right, in all launches of this size
};

// `own` and `rival` have one element per launch, in the order of launching. Without rivals: only the own
// half.
std::vector<comparison_row> compare(const std::vector<report>& own, const std::vector<report>& rival);

// A heading, what was measured, and the table.
std::string markdown_of(const std::vector<report>& own, const std::vector<report>& rival);

}  // namespace perf
