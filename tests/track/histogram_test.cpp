// SPDX-License-Identifier: Apache-2.0
#include "track/event_encoding.hpp"

#include <doctest/doctest.h>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

using tutti::track::histogram;
using tutti::track::histogram_of;

TEST_CASE("histogram: every value is in one bucket") {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> values(10'000);
  for (double& v : values) v = normal(random);
  const histogram h = histogram_of(values);
  CHECK(h.limits.size() == 64);
  CHECK(h.count == values.size());
  CHECK(std::accumulate(h.counts.begin(), h.counts.end(), 0.0) == 10'000);
  CHECK(h.limits.back() == h.max);
  for (std::size_t i = 1; i < h.limits.size(); ++i) CHECK(h.limits[i - 1] < h.limits[i]);
}

TEST_CASE("histogram: none, one, equal and extreme values") {
  CHECK(histogram_of({}).limits.empty());
  const std::vector<double> same(5, 3.0);
  CHECK(histogram_of(same).counts == std::vector<double>{5});
  const double most = std::numeric_limits<double>::max();
  const std::vector<double> wide{-most, 0, most, std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()};
  const histogram h = histogram_of(wide, 4);
  CHECK(h.not_finite == 2);
  CHECK(std::accumulate(h.counts.begin(), h.counts.end(), 0.0) == 3);
}
