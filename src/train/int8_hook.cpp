// SPDX-License-Identifier: Apache-2.0
// An average in two exchanges of blocks of int8: every rank gets all others' parts of its own blocks, adds
// them as floats, and gives the average to all.
#include <tutti/train/gradient_hooks.hpp>

#include "train/int8_blocks.hpp"

#include <algorithm>
#include <map>
#include <tutti/shared_memory.hpp>
#include <vector>

namespace tutti {
namespace {

// Which elements and which bytes are whose: whole blocks, the first ranks' one longer.
struct int8_parts {
  int8_parts() = default;
  int8_parts(std::size_t elements, int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t all = (elements + train::int8_block - 1) / train::int8_block;
    for (std::size_t r = 0; r <= n; ++r)
      begins.push_back(std::min(elements, (all / n * r + std::min(r, all % n)) * train::int8_block));
    for (std::size_t r = 0; r < n; ++r) bytes.push_back(train::int8_bytes(begins[r + 1] - begins[r]));
  }
  std::size_t elements(std::size_t r) const noexcept { return begins[r + 1] - begins[r]; }

  std::vector<std::size_t> begins;  // elements, of each rank; and the end
  std::vector<std::size_t> bytes;
};

// What one bucket keeps from step to step.
struct int8_bucket {
  int8_parts parts;
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
    co_await c.all_to_all_v(b.all, b.parts.bytes, b.arrived, b.own_bytes);
    average_own(b, c.size());
    co_await c.all_gather_v(b.mine, b.all, b.parts.bytes);
    for_each_part(b, bucket.data, train::dequantise);
  }

 private:
  void lay_out(int8_bucket& b, const communicator& c, std::size_t elements) const {
    if (b.own_bytes.size() == static_cast<std::size_t>(c.size()) && b.parts.begins.back() == elements) return;
    b.parts = int8_parts(elements, c.size());
    const auto rank = static_cast<std::size_t>(c.rank());
    b.own_bytes.assign(static_cast<std::size_t>(c.size()), b.parts.bytes[rank]);
    std::size_t all = 0;
    for (const std::size_t bytes : b.parts.bytes) all += bytes;
    b.all.resize(all);
    b.arrived.resize(b.parts.bytes[rank] * b.own_bytes.size());
    b.mine.resize(b.parts.bytes[rank]);
    b.average.resize(b.parts.elements(rank));
    if (!options_.error_feedback) return;
    b.lost.resize(elements);
    b.average_lost.resize(b.average.size());
  }

  // each(bytes, floats) for the part of each rank.
  template <class Each>
  static void for_each_part(int8_bucket& b, std::span<float> values, Each each) {
    std::span<std::byte> bytes(b.all);
    for (std::size_t r = 0; r < b.parts.bytes.size(); ++r) {
      each(bytes.first(b.parts.bytes[r]), values.subspan(b.parts.begins[r], b.parts.elements(r)));
      bytes = bytes.subspan(b.parts.bytes[r]);
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
