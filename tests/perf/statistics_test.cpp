// SPDX-License-Identifier: Apache-2.0
#include "common/statistics.hpp"

#include <doctest/doctest.h>
#include <vector>

TEST_CASE("quantiles are interpolated between neighbours") {
  const std::vector<double> values{1, 2, 3, 4, 5};
  CHECK(perf::quantile(values, 0) == doctest::Approx(1));
  CHECK(perf::quantile(values, 0.5) == doctest::Approx(3));
  CHECK(perf::quantile(values, 1) == doctest::Approx(5));
  CHECK(perf::quantile(values, 0.1) == doctest::Approx(1.4));
  CHECK(perf::quantile(values, 0.9) == doctest::Approx(4.6));
  CHECK(perf::quantile({10, 20}, 0.25) == doctest::Approx(12.5));
}

TEST_CASE("quantiles of no values, of one, and outside of 0..1") {
  CHECK(perf::quantile({}, 0.5) == 0);
  CHECK(perf::quantile({7}, 0.9) == 7);
  CHECK(perf::quantile({1, 2}, -1) == 1);
  CHECK(perf::quantile({1, 2}, 2) == 2);
}

TEST_CASE("a summary sorts") {
  const perf::summary s = perf::summarize({5, 1, 4, 2, 3});
  CHECK(s.min == 1);
  CHECK(s.median == 3);
  CHECK(s.max == 5);
  CHECK(s.p10 == doctest::Approx(1.4));
  CHECK(s.p90 == doctest::Approx(4.6));
}

TEST_CASE("the median of an even number is between the middle two") {
  CHECK(perf::summarize({4, 1, 3, 2}).median == doctest::Approx(2.5));
  CHECK(perf::summarize({}).median == 0);
}

TEST_CASE("one stall does not move the median") {
  std::vector<double> times(100, 1.0);
  times.push_back(4000);
  const perf::summary s = perf::summarize(times);
  CHECK(s.median == 1);
  CHECK(s.p90 == 1);
  CHECK(s.max == 4000);
}
