// SPDX-License-Identifier: Apache-2.0
#include "base/sparse_array.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using tutti::base::sparse_array;

TEST_CASE("a small array has all elements, a large one those that were used") {
  for (const std::size_t size : {std::size_t{1}, sparse_array<int>::most_flat,
                                 sparse_array<int>::most_flat + 1, std::size_t{65'537}}) {
    CAPTURE(size);
    sparse_array<int> all(size);
    CHECK(all.size() == size);
    const bool flat = size <= sparse_array<int>::most_flat;
    CHECK((all.find(size - 1) != nullptr) == flat);
    int* const last = &all[size - 1];
    *last = 7;
    all[0] = 5;
    CHECK(all.find(size - 1) == last);
    std::size_t seen = 0;
    std::vector<std::size_t> used;
    all.for_each([&](std::size_t index, int value) {
      ++seen;
      if (value != 0) used.push_back(index);
    });
    CHECK(used.front() == 0);
    CHECK(used.back() == size - 1);
    CHECK(seen <= sparse_array<int>::most_flat);
    all.resize(size);
    CHECK(all[size - 1] == 0);
  }
  sparse_array<int>().for_each([](std::size_t, int) { FAIL("it has none"); });
}
