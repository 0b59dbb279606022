// SPDX-License-Identifier: Apache-2.0
// float16 and bfloat16: every value, and every boundary of rounding.
#include <doctest/doctest.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <tutti/half.hpp>
#include <type_traits>

using namespace tutti;

namespace {

template <class T>
concept half = std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T> &&
               sizeof(T) == 2 && alignof(T) == 2 && std::convertible_to<T, float> &&
               !std::convertible_to<float, T> && std::constructible_from<T, float>;
static_assert(half<float16> && half<bfloat16>);
static_assert(float16{}.bits() == 0 && bfloat16{}.bits() == 0);
static_assert(float16(1.5F) * float16(2.0F) == 3.0F && bfloat16(-2.0F) < bfloat16(0.5F));  // as float

// The fields of a number.
template <class T>
struct layout;
template <>
struct layout<float16> {
  static constexpr int fraction_bits = 10, bias = 15;
};
template <>
struct layout<bfloat16> {
  static constexpr int fraction_bits = 7, bias = 127;
};

// The value of a bit pattern, by the definition of the format.
template <class T>
double meaning(std::uint32_t bits) {
  constexpr int fraction_bits = layout<T>::fraction_bits;
  const auto exponent = static_cast<int>((bits & 0x7fff) >> fraction_bits);
  const auto fraction = static_cast<double>(bits & ((1U << fraction_bits) - 1));
  const double one = exponent == 0 ? 0 : std::ldexp(1.0, fraction_bits);
  const double magnitude =
      std::ldexp(one + fraction, std::max(exponent, 1) - layout<T>::bias - fraction_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
constexpr std::uint32_t infinity_bits = std::numeric_limits<T>::infinity().bits();

}  // namespace

TEST_CASE_TEMPLATE("half: all 65536 values to float and back", T, float16, bfloat16) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T x = T::from_bits(static_cast<std::uint16_t>(bits));
    const float value = x;
    const std::uint32_t magnitude = bits & 0x7fff;
    if (magnitude > infinity_bits<T>) {
      const T back(value);
      constexpr std::uint32_t quiet = 1U << (layout<T>::fraction_bits - 1);
      wrong += !std::isnan(value) || back.bits() != (bits | quiet);
    } else if (magnitude == infinity_bits<T>) {
      wrong += !std::isinf(value) || std::signbit(value) != ((bits & 0x8000) != 0) || T(value).bits() != bits;
    } else {
      wrong += static_cast<double>(value) != meaning<T>(bits) ||
               std::signbit(value) != ((bits & 0x8000) != 0) || T(value).bits() != bits;
    }
  }
  CHECK(wrong == 0);
}

// Between two neighbours: the midpoint rounds to the even one, values beside it to the nearer one.
TEST_CASE_TEMPLATE("half: rounds to the nearest, ties to even", T, float16, bfloat16) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < infinity_bits<T>; ++bits) {
    const double low = meaning<T>(bits);
    const double high = meaning<T>(bits + 1);  // above the largest: where infinity lies as a value
    const auto middle = static_cast<float>((low + high) / 2);
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const auto rounded = [&](float magnitude) { return T(sign != 0 ? -magnitude : magnitude).bits(); };
      wrong += rounded(middle) != (sign | (bits + (bits & 1)));
      wrong += rounded(std::nextafter(middle, 0.0F)) != (sign | bits);
      wrong += rounded(std::nextafter(middle, std::numeric_limits<float>::infinity())) != (sign | (bits + 1));
      wrong += rounded(static_cast<float>(low)) != (sign | bits);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("half: overflow gives infinity, underflow gives zero, and signs are kept") {
  CHECK(float16(65519.996F).bits() == 0x7bff);
  CHECK(float16(65520.0F).bits() == 0x7c00);
  CHECK(float16(-1e30F).bits() == 0xfc00);
  CHECK(float16(0x1p-25F).bits() == 0);  // half of the smallest: a tie
  CHECK(float16(-0x1p-25F).bits() == 0x8000);
  CHECK(float16(0x1.000002p-25F).bits() == 1);
  CHECK(float16(std::numeric_limits<float>::denorm_min()).bits() == 0);
  CHECK(bfloat16(std::numeric_limits<float>::max()).bits() == 0x7f80);
  CHECK(bfloat16(-std::numeric_limits<float>::denorm_min()).bits() == 0x8000);
}

TEST_CASE("half: a NaN becomes quiet and keeps the upper bits of its payload") {
  CHECK(float16(std::bit_cast<float>(0x7f800001U)).bits() == 0x7e00);
  CHECK(float16(std::bit_cast<float>(0xffffffffU)).bits() == 0xffff);
  CHECK(float16(std::bit_cast<float>(0x7fa02000U)).bits() == 0x7f01);
  CHECK(bfloat16(std::bit_cast<float>(0x7f800001U)).bits() == 0x7fc0);
  CHECK(bfloat16(std::bit_cast<float>(0xff810000U)).bits() == 0xffc1);
}

TEST_CASE_TEMPLATE("half: numeric_limits", T, float16, bfloat16) {
  using limits = std::numeric_limits<T>;
  static_assert(limits::is_specialized && limits::has_infinity && !limits::is_integer);
  CHECK(T(1.0F + limits::epsilon()) != T(1.0F));
  CHECK(T(1.0F + limits::epsilon() / 2) == T(1.0F));
  CHECK(limits::epsilon() == std::ldexp(1.0F, 1 - limits::digits));
  constexpr bool is_float16 = std::is_same_v<T, float16>;
  CHECK(limits::digits10 == (is_float16 ? 3 : 2));
  CHECK(limits::max_digits10 == (is_float16 ? 5 : 4));
  CHECK(limits::max_exponent10 == (is_float16 ? 4 : 38));
  CHECK(limits::min_exponent10 == (is_float16 ? -4 : -37));
  CHECK(limits::min() == std::ldexp(1.0F, limits::min_exponent - 1));
  CHECK(limits::max() == std::ldexp(1.0 - std::ldexp(1.0, -limits::digits), limits::max_exponent));
  CHECK(limits::lowest() == -limits::max());
  CHECK(limits::denorm_min() == std::ldexp(1.0, limits::min_exponent - limits::digits));
  CHECK(limits::round_error() == 0.5F);
  CHECK(std::isinf(float(limits::infinity())));
  CHECK(std::isnan(float(limits::quiet_NaN())));
  CHECK(std::isnan(float(limits::signaling_NaN())));
}
