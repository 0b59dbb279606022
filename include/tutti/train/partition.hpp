// SPDX-License-Identifier: Apache-2.0
// Which samples each rank learns from: partitions of a data set, and batches that all ranks share.
//
// With shared_batches, all ranks share each batch: every rank makes the same number of steps, and the training
// does not depend on the number of ranks. With data_partitioner, as in the PyTorch tutorial, each rank has a
// partition and batches of its own: some ranks finish first, which needs data_parallel_options::uneven.
#pragma once

#include <tutti/train/shuffle.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

// The index of a sample in its data set.
using sample_index = std::uint32_t;

// Where the share of `rank` of `ranks` begins in `size` elements. The shares of all ranks are disjoint, cover the whole in
// order, and differ in size by at most one. Requires 0 <= rank <= ranks; at `ranks` the last share has ended.
inline std::size_t share_begin(std::size_t size, int rank, int ranks) noexcept {
  const std::size_t n = static_cast<std::size_t>(ranks), r = static_cast<std::size_t>(rank);
  return size / n * r + size % n * r / n;  // size * r / n without overflow
}
// Returns the share of `whole` that belongs to `rank` of `ranks`. Requires 0 <= rank < ranks.
template <class T>
std::span<T> share_of(std::span<T> whole, int rank, int ranks) noexcept {
  const std::size_t first = share_begin(whole.size(), rank, ranks);
  return whole.subspan(first, share_begin(whole.size(), rank + 1, ranks) - first);
}

// Consecutive batches of `batch` samples, the last of which may be smaller: their number, and batch `step`.
// Requires batch > 0 and step < batches_in(items.size(), batch).
inline std::size_t batches_in(std::size_t items, std::size_t batch) noexcept {
  return items / batch + (items % batch != 0 ? 1 : 0);
}
template <class T>
std::span<T> batch_of(std::span<T> items, std::size_t batch, std::size_t step) noexcept {
  return items.subspan(step * batch, std::min(batch, items.size() - step * batch));
}

// Shuffles the indices 0 to samples - 1 by a seed and cuts them into parts, like the PyTorch tutorial's
// DataPartitioner. The same arguments give the same parts on every rank and machine.
class data_partitioner {
 public:
  // Makes part i of fraction i of the samples; no parts overlap, and fractions of the whole leave no sample out.
  // Errors: throws errc::invalid_argument for a negative or NaN fraction, a sum above one, or more than 2^32
  // - 1 samples.
  data_partitioner(std::size_t samples, std::span<const double> fractions, std::uint64_t seed = 1234);
  // Makes one part per rank; sizes differ by at most one.
  data_partitioner(std::size_t samples, int ranks, std::uint64_t seed = 1234);

  // The number of parts.
  int parts() const noexcept { return static_cast<int>(ends_.size()); }
  // Returns the samples of a part; valid as long as this object.
  // Errors: throws errc::invalid_argument if there is no such part.
  std::span<const sample_index> use(int part) const;

 private:
  std::vector<sample_index> order_;
  std::vector<std::size_t> ends_;
};

// Batches that all ranks share. Batch s of an epoch holds the same samples for any number of ranks, and each
// rank learns from its share. The last batch of an epoch may be smaller, and some shares of it empty. Ranks
// with an empty share still take part in the averaging.
class shared_batches {
 public:
  // `batch` is the number of samples per step, of all ranks together.
  // Errors: throws errc::invalid_argument for an empty batch, an invalid rank, or more than 2^32 - 1 samples.
  shared_batches(std::size_t samples, std::size_t batch, int rank, int ranks, std::uint64_t seed);

  // Shuffles the samples for this epoch. The order depends only on the seed and the epoch.
  void begin_epoch(std::uint64_t epoch);
  // The number of batches in an epoch.
  std::size_t steps() const noexcept { return batches_in(order_.size(), batch_); }

  // The samples of batch `step`, of all ranks together.
  std::span<const sample_index> all(std::size_t step) const noexcept {
    return batch_of(std::span<const sample_index>(order_), batch_, step);
  }
  // This rank's share of batch `step`.
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
