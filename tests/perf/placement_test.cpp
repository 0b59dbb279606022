// SPDX-License-Identifier: Apache-2.0
#include "common/placement.hpp"

#include <doctest/doctest.h>

TEST_CASE("placements have names") {
  CHECK(perf::place_of(0) == '-');
  CHECK(perf::place_of(19) == 'S');
  CHECK(perf::place_of(45) == 'C');
  CHECK(perf::place_of(62) == 'C');
  CHECK(perf::place_of(235) == 'X');
  CHECK(perf::text_of_places(50, 55) == "C");
  CHECK(perf::text_of_places(50, 240) == "C>X");
}

TEST_CASE("a measurement ends with a physically possible time, or none") {
  const double ns = perf::cache_line_ns();
  CHECK(ns >= 0);
  CHECK(ns < 1e6);
}
