// SPDX-License-Identifier: Apache-2.0
// float16 and bfloat16: two bytes in memory and in messages, float in arithmetic.
#pragma once

#include <tutti/detail/element_type.hpp>

#include <bit>
#include <cstdint>
#include <limits>

namespace tutti {
namespace detail {

constexpr std::uint16_t float16_bits(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t rounded = 0;
  if (magnitude > 0x7f800000) {  // NaN: made quiet, keeping the upper bits of its payload
    rounded = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  } else if (magnitude >= 0x47800000) {  // 65536 and more: infinity
    rounded = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // normal; a carry out of the fraction goes to the exponent
    rounded = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  } else if (magnitude > 0x33000000) {  // subnormal: more than half of the smallest
    const std::uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
    const std::uint32_t shift = 126 - (magnitude >> 23);
    const std::uint32_t half = 1U << (shift - 1);
    rounded = (fraction + half - 1 + ((fraction >> shift) & 1)) >> shift;
  }
  return static_cast<std::uint16_t>(sign | rounded);
}

constexpr float float16_value(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1f;
  const std::uint32_t fraction = bits & 0x3ff;
  std::uint32_t magnitude = ((exponent + 112) << 23) | (fraction << 13);
  if (exponent == 0) {
    magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24f);
  } else if (exponent == 31) {
    magnitude = 0x7f800000 | (fraction << 13) | (fraction != 0 ? 0x400000 : 0);
  }
  return std::bit_cast<float>(sign | magnitude);
}

constexpr std::uint16_t bfloat16_bits(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

constexpr float bfloat16_value(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace detail

// A number of two bytes: a sign, an exponent, and `fraction_bits` bits of fraction. float16 (IEEE 754 binary16)
// has 11 bits of precision and reaches 65504. bfloat16 is the upper half of a float: its range with 8 bits of
// precision.
// Conversion from float is explicit and rounds to nearest, ties to even. Too large values become infinite,
// and a NaN stays a (quiet) NaN. A double is rounded to float first. Conversion to float is exact and
// implicit, so arithmetic and comparisons are those of float: `a = float16(a * b + c)` rounds once.
template <int fraction_bits>
class basic_half {
  static_assert(fraction_bits == 10 || fraction_bits == 7);

 public:
  basic_half() = default;  // uninitialised, as a float; float16{} is zero
  explicit constexpr basic_half(float value) noexcept
      : bits_(fraction_bits == 10 ? detail::float16_bits(value) : detail::bfloat16_bits(value)) {}
  constexpr operator float() const noexcept {
    return fraction_bits == 10 ? detail::float16_value(bits_) : detail::bfloat16_value(bits_);
  }

  static constexpr basic_half from_bits(std::uint16_t bits) noexcept {
    basic_half x{};
    x.bits_ = bits;
    return x;
  }
  constexpr std::uint16_t bits() const noexcept { return bits_; }

 private:
  std::uint16_t bits_;
};
using float16 = basic_half<10>;
using bfloat16 = basic_half<7>;

}  // namespace tutti

template <int fraction_bits>
class std::numeric_limits<tutti::basic_half<fraction_bits>> : public std::numeric_limits<float> {
  using half = tutti::basic_half<fraction_bits>;
  static constexpr std::uint16_t least = 1U << fraction_bits, infinite = 0x8000U - least;

 public:
  static constexpr int digits = fraction_bits + 1;
  static constexpr int max_exponent = 1 << (14 - fraction_bits), min_exponent = 3 - max_exponent;
  // 0.301 is the decimal logarithm of 2.
  static constexpr int digits10 = fraction_bits * 301 / 1000, max_digits10 = digits * 301 / 1000 + 2;
  static constexpr int max_exponent10 = max_exponent * 301 / 1000;
  static constexpr int min_exponent10 = (min_exponent - 1) * 301 / 1000;
  static constexpr half min() noexcept { return half::from_bits(least); }
  static constexpr half max() noexcept { return half::from_bits(infinite - 1); }
  static constexpr half lowest() noexcept { return half::from_bits(0x8000U | (infinite - 1)); }
  static constexpr half epsilon() noexcept { return half(1.0F / least); }
  static constexpr half round_error() noexcept { return half(0.5F); }
  static constexpr half infinity() noexcept { return half::from_bits(infinite); }
  static constexpr half quiet_NaN() noexcept { return half::from_bits(infinite | least / 2); }
  static constexpr half signaling_NaN() noexcept { return half::from_bits(infinite | least / 4); }
  static constexpr half denorm_min() noexcept { return half::from_bits(1); }
};
