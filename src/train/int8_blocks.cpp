// SPDX-License-Identifier: Apache-2.0
#include "train/int8_blocks.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

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
