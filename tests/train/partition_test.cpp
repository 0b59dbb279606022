// SPDX-License-Identifier: Apache-2.0
// Partitions and batches: disjoint, complete, and the same on all ranks.
#include <tutti/train/partition.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>
#include <span>
#include <tutti/error.hpp>
#include <vector>

using namespace tutti;

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

TEST_CASE("partition: fractions cut a shuffle that the seed determines") {
  const std::array fractions{0.7, 0.2, 0.1};
  const data_partitioner parts(1000, fractions), again(1000, fractions), other(1000, fractions, 7);
  REQUIRE(parts.parts() == 3);
  CHECK(parts.use(0).size() == 700);
  CHECK(parts.use(1).size() == 200);
  CHECK(parts.use(2).size() == 100);
  std::set<sample_index> seen;
  for (int i = 0; i < 3; ++i) {
    seen.insert(parts.use(i).begin(), parts.use(i).end());
    CHECK(std::ranges::equal(parts.use(i), again.use(i)));
  }
  CHECK(seen.size() == 1000);
  CHECK(*seen.rbegin() == 999);
  CHECK_FALSE(std::ranges::equal(parts.use(0), other.use(0)));
  CHECK_FALSE(std::ranges::is_sorted(parts.use(0)));
}

TEST_CASE("partition: no sample is in two parts, and none is lost if the fractions add up to one") {
  for (const std::size_t size : {0u, 1u, 5u, 101u, 1797u})
    for (const int n : {1, 3, 7, 10}) {
      const std::vector<double> fractions(static_cast<std::size_t>(n), 1.0 / n);
      const data_partitioner by_fraction(size, fractions), by_rank(size, n);
      for (const data_partitioner* parts : {&by_fraction, &by_rank}) {
        std::set<sample_index> seen;
        std::size_t sum = 0, least = size, most = 0;
        for (int i = 0; i < n; ++i) {
          const auto part = parts->use(i);
          seen.insert(part.begin(), part.end());
          sum += part.size();
          least = std::min(least, part.size());
          most = std::max(most, part.size());
        }
        CHECK(seen.size() == size);
        CHECK(sum == size);
        CHECK(most - least <= 1);
      }
    }
  const std::array half{0.25, 0.25};
  CHECK(data_partitioner(100, half).use(1).size() == 25);
}

TEST_CASE("partition: invalid arguments are refused") {
  for (const std::vector<double>& bad : {std::vector<double>{0.6, 0.5}, {-0.1, 0.5}, {NAN}, {INFINITY}})
    CHECK_THROWS_AS(data_partitioner(10, bad), error);
  CHECK_THROWS_AS(data_partitioner(10, 0), error);
  CHECK_THROWS_AS(data_partitioner(10, 2).use(2), error);
  CHECK_THROWS_AS(data_partitioner(10, 2).use(-1), error);
  CHECK_THROWS_AS(data_partitioner(std::size_t{1} << 33, 2), error);
  CHECK_THROWS_AS(shared_batches(10, 0, 0, 1, 1), error);
  CHECK_THROWS_AS(shared_batches(10, 1, 1, 1, 1), error);
}

TEST_CASE("partition: any number of ranks shares the same batches, and every rank has the same number") {
  const std::size_t samples = 1000, batch = 128;
  shared_batches alone(samples, batch, 0, 1, 5);
  for (const int ranks : {2, 3, 7, 130}) {
    CAPTURE(ranks);
    for (const std::uint64_t epoch : {1u, 2u}) {
      alone.begin_epoch(epoch);
      std::vector<std::vector<sample_index>> joined(alone.steps());
      for (int rank = 0; rank < ranks; ++rank) {
        shared_batches mine(samples, batch, rank, ranks, 5);
        mine.begin_epoch(epoch);
        REQUIRE(mine.steps() == 8);
        for (std::size_t s = 0; s < mine.steps(); ++s)
          joined[s].insert(joined[s].end(), mine.mine(s).begin(), mine.mine(s).end());
      }
      std::set<sample_index> seen;
      for (std::size_t s = 0; s < alone.steps(); ++s) {
        CHECK(std::ranges::equal(joined[s], alone.mine(s)));
        seen.insert(joined[s].begin(), joined[s].end());
      }
      CHECK(seen.size() == samples);
      CHECK(alone.all(7).size() == samples - 7 * batch);
    }
  }
  alone.begin_epoch(1);
  const std::vector<sample_index> first(alone.all(0).begin(), alone.all(0).end());
  alone.begin_epoch(2);
  CHECK_FALSE(std::ranges::equal(first, alone.all(0)));
  alone.begin_epoch(1);
  CHECK(std::ranges::equal(first, alone.all(0)));
}

TEST_CASE("partition: a rank's own batches, of which the last may be smaller") {
  const std::vector<int> items(10);
  CHECK(batches_in(0, 4) == 0);
  CHECK(batches_in(8, 4) == 2);
  CHECK(batches_in(10, 4) == 3);
  CHECK(batch_of(std::span<const int>(items), 4, 1).size() == 4);
  CHECK(batch_of(std::span<const int>(items), 4, 2).size() == 2);
}
