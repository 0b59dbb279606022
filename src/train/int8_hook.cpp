// SPDX-License-Identifier: Apache-2.0
// An average in two exchanges of blocks of int8: every rank gets all others' parts of its own blocks, adds
// them as floats, and gives the average to all.
#include <tutti/train/gradient_hooks.hpp>

#include "train/int8_blocks.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tutti/shared_memory.hpp>
#include <vector>

namespace tutti {
namespace {

// What one bucket keeps from step to step.
struct int8_bucket {
  std::size_t elements(std::size_t r) const noexcept { return begins[r + 1] - begins[r]; }

  std::size_t rank = 0;  // this one
  // Which elements and which bytes are whose: whole blocks, the first ranks' one longer.
  std::vector<std::size_t> begins;  // elements, of each rank; and the end
  std::vector<std::size_t> bytes;
  std::vector<std::size_t> own_bytes;     // what each rank sends this one
  shared_vector<std::byte> all, arrived;  // all parts, behind each other; this rank's, of every rank
  shared_vector<std::byte> mine;
  std::vector<float> lost, average, average_lost;
};

class int8_average final : public gradient_hook {
 public:
  explicit int8_average(int8_options o) : options_(o) {}

  task<> reduce(communicator c, gradient_bucket bucket) override {
    if (c.size() == 1) co_return;
    int8_bucket& b = memory_[bucket.index];
    lay_out(b, c, bucket.data.size());
    quantise_gradients(b, bucket.data);
    co_await c.all_to_all_v(b.all, b.bytes, b.arrived, b.own_bytes);
    average_own(b, c.size());
    co_await c.all_gather_v(b.mine, b.all, b.bytes);
    for_each_part(b, bucket.data, train::dequantise);
  }

 private:
  void lay_out(int8_bucket& b, const communicator& c, std::size_t elements) const {
    const auto ranks = static_cast<std::size_t>(c.size()), rank = static_cast<std::size_t>(c.rank());
    if (b.own_bytes.size() == ranks && b.begins.back() == elements && b.rank == rank) return;
    b = {};
    b.rank = rank;
    const std::size_t blocks = (elements + train::int8_block - 1) / train::int8_block;
    for (std::size_t r = 0; r <= ranks; ++r)
      b.begins.push_back(
          std::min(elements, (blocks / ranks * r + std::min(r, blocks % ranks)) * train::int8_block));
    for (std::size_t r = 0; r < ranks; ++r) b.bytes.push_back(train::int8_bytes(b.elements(r)));
    b.own_bytes.assign(ranks, b.bytes[rank]);
    b.all.resize(std::accumulate(b.bytes.begin(), b.bytes.end(), std::size_t{0}));
    b.arrived.resize(b.bytes[rank] * ranks);
    b.mine.resize(b.bytes[rank]);
    b.average.resize(b.elements(rank));
    if (!options_.error_feedback) return;
    b.lost.resize(elements);
    b.average_lost.resize(b.average.size());
  }

  // each(bytes, floats) for the part of each rank.
  template <class Each>
  static void for_each_part(int8_bucket& b, std::span<float> values, Each each) {
    std::span<std::byte> bytes(b.all);
    for (std::size_t r = 0; r < b.bytes.size(); ++r) {
      each(bytes.first(b.bytes[r]), values.subspan(b.begins[r], b.elements(r)));
      bytes = bytes.subspan(b.bytes[r]);
    }
  }

  static void quantise_part(std::span<std::byte> to, std::span<float> from) { train::quantise(from, to); }

  static void quantise_gradients(int8_bucket& b, std::span<float> gradients) {
    if (b.lost.empty()) return for_each_part(b, gradients, quantise_part);
    for (std::size_t i = 0; i < gradients.size(); ++i) b.lost[i] += gradients[i];
    for_each_part(b, b.lost, quantise_part);
    for_each_part(b, b.lost, train::leave_what_is_lost);
  }

  static void average_own(int8_bucket& b, int ranks) {
    std::ranges::fill(b.average, 0.0F);
    std::span<const std::byte> from(b.arrived);
    for (int r = 0; r < ranks; ++r, from = from.subspan(b.mine.size()))
      train::add_dequantised(from.first(b.mine.size()), 1.0F / static_cast<float>(ranks), b.average);
    if (b.average_lost.empty()) return train::quantise(b.average, b.mine);
    for (std::size_t i = 0; i < b.average.size(); ++i) b.average_lost[i] += b.average[i];
    train::quantise(b.average_lost, b.mine);
    train::leave_what_is_lost(b.mine, b.average_lost);
  }

  const int8_options options_;
  std::map<std::size_t, int8_bucket> memory_;
};

}  // namespace

std::shared_ptr<gradient_hook> int8_hook(int8_options o) { return std::make_shared<int8_average>(o); }

}  // namespace tutti
