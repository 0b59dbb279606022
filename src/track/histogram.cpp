// SPDX-License-Identifier: Apache-2.0
#include "track/histogram.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::track {

histogram histogram_of(std::span<const double> values, int buckets) {
  histogram h;
  h.min = std::numeric_limits<double>::infinity();
  h.max = -h.min;
  for (const double v : values) {
    if (!std::isfinite(v)) {
      ++h.not_finite;
      continue;
    }
    h.min = std::min(h.min, v);
    h.max = std::max(h.max, v);
    h.sum += v;
    h.sum_of_squares += v * v;
    ++h.count;
  }
  if (h.count == 0) {
    h.min = h.max = 0;
    return h;
  }
  // Halves, so that the width of the whole range of doubles is representable, too.
  const double half_width = h.max / 2 - h.min / 2;
  const int n = half_width > 0 ? buckets : 1;
  for (int i = 1; i < n; ++i) h.limits.push_back(h.min + half_width * (2.0 * i / n));
  h.limits.push_back(h.max);
  h.counts.assign(h.limits.size(), 0);
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    const auto at = std::lower_bound(h.limits.begin(), h.limits.end(), v);
    h.counts[static_cast<std::size_t>(at - h.limits.begin())] += 1;
  }
  return h;
}

}  // namespace tutti::track
