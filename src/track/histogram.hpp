// SPDX-License-Identifier: Apache-2.0
// histogram: a distribution in a few numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::track {

struct histogram {
  double min = 0, max = 0, sum = 0, sum_of_squares = 0;
  std::uint64_t count = 0;
  std::uint64_t not_finite = 0;  // not counted in the others
  std::vector<double> limits;    // of each bucket, its upper end, which belongs to it
  std::vector<double> counts;
};

// Makes `buckets` of equal width between the least and the greatest value: one bucket if all values are
// equal, none without values.
histogram histogram_of(std::span<const double> values, int buckets = 64);

}  // namespace tutti::track
