// SPDX-License-Identifier: Apache-2.0
#include <tutti/train/partition.hpp>

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <tutti/error.hpp>

namespace tutti {
namespace {

std::vector<sample_index> indices(std::size_t samples) {
  if (samples > std::numeric_limits<sample_index>::max())
    throw error(errc::invalid_argument,
                fmt::format("{} samples: a partition counts up to 4294967295", samples));
  std::vector<sample_index> all(samples);
  std::iota(all.begin(), all.end(), sample_index{0});
  return all;
}

void shuffle_by(std::span<sample_index> all, std::uint64_t seed) {
  random_bits bits(seed);
  shuffle(all, bits);
}
std::vector<sample_index> shuffled(std::size_t samples, std::uint64_t seed) {
  std::vector<sample_index> all = indices(samples);
  shuffle_by(all, seed);
  return all;
}

}  // namespace

data_partitioner::data_partitioner(std::size_t samples, std::span<const double> fractions, std::uint64_t seed)
    : order_(shuffled(samples, seed)) {
  // Tenths do not add up to exactly one.
  constexpr double nearly = 1e-9;
  double covered = 0;
  for (const double fraction : fractions) {
    covered += fraction;
    if (!(fraction >= 0) || covered > 1 + nearly)
      throw error(
          errc::invalid_argument,
          fmt::format("a partition by fractions: {:f} is negative, no number, or makes their sum {:f}; "
                      "they add up to 1 at most",
                      fraction, covered));
    const bool whole = covered > 1 - nearly;
    const auto end = static_cast<std::size_t>(std::llround(covered * static_cast<double>(samples)));
    ends_.push_back(whole ? samples : std::min(end, samples));
  }
}

data_partitioner::data_partitioner(std::size_t samples, int ranks, std::uint64_t seed)
    : order_(shuffled(samples, seed)) {
  if (ranks < 1) throw error(errc::invalid_argument, fmt::format("a partition for {} ranks", ranks));
  std::size_t end = 0;
  for (int rank = 0; rank < ranks; ++rank)
    ends_.push_back(end += share_of(std::span(order_), rank, ranks).size());
}

std::span<const sample_index> data_partitioner::use(int part) const {
  if (part < 0 || part >= parts())
    throw error(errc::invalid_argument, fmt::format("part {} of a partition that has {}", part, parts()));
  const auto i = static_cast<std::size_t>(part);
  const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::span(order_).subspan(begin, ends_[i] - begin);
}

shared_batches::shared_batches(std::size_t samples, std::size_t batch, int rank, int ranks,
                               std::uint64_t seed)
    : order_(indices(samples)), batch_(batch), rank_(rank), ranks_(ranks), seed_(seed) {
  if (batch == 0) throw error(errc::invalid_argument, "batches of no samples");
  if (rank < 0 || rank >= ranks)
    throw error(errc::invalid_argument, fmt::format("batches for rank {} of {}", rank, ranks));
}

void shared_batches::begin_epoch(std::uint64_t epoch) {
  std::iota(order_.begin(), order_.end(), sample_index{0});  // in place: spans of it stay valid
  shuffle_by(order_, seed_ * 1'000'003 + epoch);
}

}  // namespace tutti
