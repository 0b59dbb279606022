// SPDX-License-Identifier: Apache-2.0
// The output of a run: rank 0 prints rows as they come, and looks at the placement between them.
#pragma once

#include "common/options.hpp"
#include "common/report.hpp"

#include <cstdio>
#include <string>

namespace perf {

class session {
 public:
  // On rank 0 prints the head of the table.
  session(const options& chosen, report about, int rank);

  // On rank 0 measures the placement and prints the row. The other ranks meanwhile leave the cores alone:
  // they wait for the next batch.
  void add(row done);
  void add(overlap_row done);
  // Writes the JSON. The exit code of this rank: rank 0 speaks for all, the others end with 0.
  int finish();

 private:
  options options_;
  report report_;
  std::FILE* table_;
  bool speaks_;
  double line_ns_ = 0;
};

}  // namespace perf
