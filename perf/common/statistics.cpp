// SPDX-License-Identifier: Apache-2.0
#include "common/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace perf {

double quantile(const std::vector<double>& sorted, double q) noexcept {
  if (sorted.empty()) return 0;
  const double position = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const std::size_t below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

summary summarize(std::vector<double> values) {
  summary result;
  if (values.empty()) return result;
  std::sort(values.begin(), values.end());
  result.min = values.front();
  result.p10 = quantile(values, 0.1);
  result.median = quantile(values, 0.5);
  result.p90 = quantile(values, 0.9);
  result.max = values.back();
  return result;
}

}  // namespace perf
