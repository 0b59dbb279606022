// SPDX-License-Identifier: Apache-2.0
// An average in two exchanges of blocks of int8: every rank gets all others' parts of its own blocks, adds
// them as floats, and gives the average to all.
#include <tutti/train/gradient_hooks.hpp>

#include "train/int8_blocks.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <tutti/shared_memory.hpp>
#include <vector>

// The loops have no calls and no branches inside, so that they are vectorised (src/CMakeLists.txt: -O3).
namespace tutti::train {
namespace {

constexpr std::int32_t infinity = 0x7f800000;  // the bits of one; larger ones are NaN

// Comparisons of bits see a NaN, those of floats do not.
std::int32_t largest_magnitude(const float* from, std::size_t n) noexcept {
  std::int32_t most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(from[i]) & 0x7fffffff;
    most = most > magnitude ? most : magnitude;
  }
  return most;
}

// What 1 is worth.
float quantise_block(const float* from, std::int8_t* to, std::size_t n) noexcept {
  const std::int32_t most = largest_magnitude(from, n);
  const float largest = std::bit_cast<float>(most);
  if (most >= infinity || largest < 2e-36F) {  // of less the inverse is infinite
    std::memset(to, 0, n);
    return most >= infinity ? std::numeric_limits<float>::quiet_NaN() : 0;
  }
  const float inverse = 127 / largest;
  // In a sum with 1.5 * 2^23 the last bit is worth one: the addition rounds, to the nearest.
  constexpr float shift = 12'582'912;
  for (std::size_t i = 0; i < n; ++i)
    to[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(from[i] * inverse + shift) -
                                     std::bit_cast<std::int32_t>(shift));
  return largest / 127;
}

// each(to[i], share * what from[i] stands for, whether that is a number); the last is the same in a block.
template <class Each>
void for_each_element(std::span<const std::byte> from, float share, std::span<float> to, Each each) noexcept {
  const std::size_t n = to.size();
  const std::byte* factors = from.data();
  const auto* const q = reinterpret_cast<const std::int8_t*>(from.data() + int8_bytes(n) - n);
  for (std::size_t begin = 0; begin < n; begin += int8_block, factors += sizeof(float)) {
    float factor;
    std::memcpy(&factor, factors, sizeof factor);
    factor *= share;
    const std::size_t end = std::min(begin + int8_block, n);
    for (std::size_t i = begin; i < end; ++i)
      each(to[i], static_cast<float>(q[i]) * factor, factor == factor);
  }
}

}  // namespace

void quantise(std::span<const float> from, std::span<std::byte> to) noexcept {
  const std::size_t n = from.size();
  std::byte* factors = to.data();
  auto* const elements = reinterpret_cast<std::int8_t*>(to.data() + int8_bytes(n) - n);
  for (std::size_t begin = 0; begin < n; begin += int8_block, factors += sizeof(float)) {
    const float factor =
        quantise_block(from.data() + begin, elements + begin, std::min(int8_block, n - begin));
    std::memcpy(factors, &factor, sizeof factor);
  }
}

void dequantise(std::span<const std::byte> from, std::span<float> to) noexcept {
  for_each_element(from, 1, to, [](float& out, float value, bool) { out = value; });
}

void add_dequantised(std::span<const std::byte> from, float share, std::span<float> to) noexcept {
  for_each_element(from, share, to, [](float& out, float value, bool) { out += value; });
}

void leave_what_is_lost(std::span<const std::byte> from, std::span<float> values) noexcept {
  for_each_element(from, 1, values,
                   [](float& out, float value, bool is_number) { out = is_number ? out - value : 0; });
}

}  // namespace tutti::train

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
