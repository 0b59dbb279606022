// SPDX-License-Identifier: Apache-2.0
// Runs as one self-contained HTML page: no network, no script, no other file (except the artifacts that it
// links to).
#pragma once

#include "report/run_data.hpp"

#include <string>
#include <vector>

namespace tutti::report {

std::string page_of(const run_data& run);

// Several runs side by side. A chart for each series, with a line for each run, the mean over its ranks. Then
// the hyperparameters in which the runs differ, and the last values.
std::string comparison_of(const std::vector<run_data>& runs);

// A run for a terminal.
std::string summary_of(const run_data& run);

}  // namespace tutti::report
