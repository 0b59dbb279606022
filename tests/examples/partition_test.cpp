// SPDX-License-Identifier: Apache-2.0
// Shares of a batch.
#include "train_digits/partition.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

using train_digits::share_of;

TEST_CASE("partition: shares are disjoint, complete, in order, and even") {
  for (const std::size_t size : {0u, 1u, 2u, 3u, 7u, 29u, 64u, 1437u}) {
    std::vector<int> all(size);
    std::iota(all.begin(), all.end(), 0);
    for (const int ranks : {1, 2, 3, 4, 7, 64}) {
      CAPTURE(size);
      CAPTURE(ranks);
      std::vector<int> joined;
      std::size_t smallest = size, largest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::span<const int> share = share_of(std::span<const int>(all), rank, ranks);
        joined.insert(joined.end(), share.begin(), share.end());
        smallest = std::min(smallest, share.size());
        largest = std::max(largest, share.size());
      }
      CHECK(joined == all);
      CHECK(largest - smallest <= 1);
    }
  }
}
