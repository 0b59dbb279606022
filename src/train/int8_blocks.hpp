// SPDX-License-Identifier: Apache-2.0
// Floats as blocks of 256 whole numbers from -127 to 127, with a float for each block that says what one is
// worth.
#pragma once

#include <cstddef>
#include <span>

namespace tutti::train {

inline constexpr std::size_t int8_block = 256;

// What n floats take: the factors of all blocks, then a byte for each element. The last block may be shorter.
constexpr std::size_t int8_bytes(std::size_t n) noexcept {
  return (n + int8_block - 1) / int8_block * sizeof(float) + n;
}

// Each element is off by at most 1/253 of the largest magnitude of its block, or by 2e-36. Of a block with a
// number that is not finite, all elements become NaN.
void quantise(std::span<const float> from, std::span<std::byte> to) noexcept;
// to[i] = what from[i] stands for.
void dequantise(std::span<const std::byte> from, std::span<float> to) noexcept;
// to[i] += share * what from[i] stands for.
void add_dequantised(std::span<const std::byte> from, float share, std::span<float> to) noexcept;
// values[i] -= what from[i] stands for; 0 where that is NaN.
void leave_what_is_lost(std::span<const std::byte> from, std::span<float> values) noexcept;

}  // namespace tutti::train
