// SPDX-License-Identifier: Apache-2.0
// The table of algorithms: few steps for little, few bytes for much.
#include "coll/choice.hpp"

#include <cstdlib>
#include <doctest/doctest.h>
#include <initializer_list>

using tutti::coll::all_reduce_algorithm;
using tutti::coll::choose_all_reduce;

TEST_CASE("choice: little data in few steps, much in a ring") {
  if (std::getenv("TUTTI_ALL_REDUCE") != nullptr) return;   // forced from outside: there is no choice
  for (const int ranks : {2, 3, 4, 8, 64, 1000}) {
    CAPTURE(ranks);
    CHECK(choose_all_reduce(0, ranks) == all_reduce_algorithm::recursive_doubling);
    CHECK(choose_all_reduce(8, ranks) == all_reduce_algorithm::recursive_doubling);
    CHECK(choose_all_reduce(std::size_t{64} << 20, ranks) == all_reduce_algorithm::ring);
  }
}

TEST_CASE("choice: one change, never back") {
  if (std::getenv("TUTTI_ALL_REDUCE") != nullptr) return;
  for (const int ranks : {2, 3, 8}) {
    CAPTURE(ranks);
    bool ring = false;
    for (std::size_t bytes = 1; bytes < (std::size_t{1} << 30); bytes += bytes / 2 + 1) {
      const bool now = choose_all_reduce(bytes, ranks) == all_reduce_algorithm::ring;
      CHECK_FALSE((ring && !now));
      ring = now;
    }
    CHECK(ring);
  }
}
