// SPDX-License-Identifier: Apache-2.0
// Order statistics of the times of batches, and of ratios of launches.
#pragma once

#include <vector>

namespace perf {

// The value below which the share `q` (0..1) of `sorted` lies, interpolated like R's type 7 and NumPy's
// default. 0 if `sorted` is empty.
double quantile(const std::vector<double>& sorted, double q) noexcept;

struct summary {
  double min = 0, p10 = 0, median = 0, p90 = 0, max = 0;
};

summary summarize(std::vector<double> values);

}  // namespace perf
