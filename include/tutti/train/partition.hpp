// SPDX-License-Identifier: Apache-2.0
// Which samples each rank learns from: partitions of a data set, and batches that all ranks share.
//
// Two ways. Batches of all ranks together (shared_batches): every rank makes the same number of steps, and
// the training is the same however many ranks share it. Or the tutorial's: each rank has a partition
// (data_partitioner) and batches of its own; then some run out first, and the others need
// data_parallel_options::uneven.
#pragma once

#include <tutti/train/shuffle.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

using sample_index = std::uint32_t;

// The consecutive share of `whole` that belongs to `rank` of `ranks`. The shares of all ranks are disjoint,
// cover the whole in order, and differ in size by at most one; with more ranks than items some are empty.
template <class T>
std::span<T> share_of(std::span<T> whole, int rank, int ranks) noexcept {
  const std::size_t n = static_cast<std::size_t>(ranks), r = static_cast<std::size_t>(rank);
  const std::size_t even = whole.size() / n, over = whole.size() % n;
  // As size * r / n would be, without its overflow.
  const std::size_t first = even * r + over * r / n, last = even * (r + 1) + over * (r + 1) / n;
  return whole.subspan(first, last - first);
}

// Consecutive batches of `items` samples, the last of which may be smaller.
inline std::size_t batches_in(std::size_t items, std::size_t batch) noexcept {
  return items / batch + (items % batch != 0 ? 1 : 0);
}
template <class T>
std::span<T> batch_of(std::span<T> items, std::size_t batch, std::size_t step) noexcept {
  return items.subspan(step * batch, std::min(batch, items.size() - step * batch));
}

// The indices 0 to samples - 1, shuffled by the seed and cut into parts: the tutorial's DataPartitioner. The
// same on every rank and machine for the same arguments.
class data_partitioner {
 public:
  // Part i has the fraction i of the samples, rounded so that no sample is in two parts, and none is left out
  // when the fractions add up to one. Throws errc::invalid_argument: a fraction that is negative or no
  // number, a sum above one, more than 2^32 - 1 samples.
  data_partitioner(std::size_t samples, std::span<const double> fractions, std::uint64_t seed = 1234);
  // As many parts as ranks, whose sizes differ by at most one.
  data_partitioner(std::size_t samples, int ranks, std::uint64_t seed = 1234);

  int parts() const noexcept { return static_cast<int>(ends_.size()); }
  // Valid as long as this. Throws errc::invalid_argument when there is no such part.
  std::span<const sample_index> use(int part) const;

 private:
  std::vector<sample_index> order_;
  std::vector<std::size_t> ends_;
};

// Batches that all ranks share: batch s of an epoch holds the same samples however many ranks there are, and
// each learns from its share of it. The last batch of an epoch may be smaller, and the share of some ranks in
// it empty: they take part in the averaging all the same, so that nobody waits for a rank that has run out.
class shared_batches {
 public:
  // `batch`: samples per step, of all ranks together. Throws errc::invalid_argument: a batch of none, a rank
  // that is none, more than 2^32 - 1 samples.
  shared_batches(std::size_t samples, std::size_t batch, int rank, int ranks, std::uint64_t seed);

  // Shuffles for this epoch, by the seed and its number alone.
  void begin_epoch(std::uint64_t epoch);
  std::size_t steps() const noexcept { return batches_in(order_.size(), batch_); }

  std::span<const sample_index> all(std::size_t step) const noexcept {
    return batch_of(std::span<const sample_index>(order_), batch_, step);
  }
  std::span<const sample_index> mine(std::size_t step) const noexcept {
    return share_of(all(step), rank_, ranks_);
  }

 private:
  std::vector<sample_index> order_;
  std::size_t batch_;
  int rank_, ranks_;
  std::uint64_t seed_;
};

}  // namespace tutti
