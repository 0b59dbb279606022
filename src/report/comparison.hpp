// SPDX-License-Identifier: Apache-2.0
// Several runs side by side, as one HTML page like that of a single one.
#pragma once

#include "report/run_data.hpp"

#include <string>
#include <vector>

namespace tutti::report {

// A chart for each series, with a line for each run, the mean over its ranks. Then the hyperparameters in
// which the runs differ, and the last values.
std::string comparison_of(const std::vector<run_data>& runs);

}  // namespace tutti::report
