// SPDX-License-Identifier: Apache-2.0
// The output of a run: rank 0 prints each row at once, and measures the placement between them.
#pragma once

#include "common/options.hpp"
#include "common/report.hpp"

#include <cstdio>
#include <string>

namespace perf {

class session {
 public:
  // Rank 0 prints the head of the table.
  session(const options& chosen, report about, int rank);

  // Rank 0 measures the placement and prints the row. The other ranks sleep until the next batch, so that the
  // cores are free.
  void add(row done);
  void add(overlap_row done);
  // Writes the JSON. Returns this rank's exit code: rank 0 reports for all, the others return 0.
  int finish();

 private:
  options options_;
  report report_;
  std::FILE* table_;
  bool speaks_;
  double line_ns_ = 0;
};

}  // namespace perf
