// SPDX-License-Identifier: Apache-2.0
// Vectors, and how each element type is loaded into and stored from them. A part of kernel_loops.hpp, which
// includes it where the instruction set is chosen.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <tutti/reduce_op.hpp>
#include <type_traits>

#define TUTTI_INLINE [[gnu::always_inline]] static inline
#define TUTTI_INLINE_LAMBDA __attribute__((always_inline))

namespace tutti::coll {
namespace {

// A vector of `N` elements of T; N may be 1.
template <class T, std::size_t N>
struct vector {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <class T, std::size_t N>
using lanes = typename vector<T, N>::type;

template <class V>
TUTTI_INLINE V load(const std::byte* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
template <class V>
TUTTI_INLINE void store(V v, std::byte* to) {
  __builtin_memcpy(to, &v, sizeof(v));
}

template <std::size_t N>
TUTTI_INLINE lanes<std::uint32_t, N> load_zero_extended(const std::byte* from) {
  const auto v = load<lanes<std::uint16_t, N>>(from);
  // g++ 12 uses four instructions for __builtin_convertvector. The plain AVX-512 intrinsics make it warn of
  // uninitialised values; the masked ones ("maskz", with all lanes) do not.
#if TUTTI_VECTOR_BYTES >= 64
  if constexpr (N == 16) return (lanes<std::uint32_t, N>)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)v);
#endif
#if TUTTI_VECTOR_BYTES >= 32
  if constexpr (N == 8) return (lanes<std::uint32_t, N>)_mm256_cvtepu16_epi32((__m128i)v);
#endif
  return __builtin_convertvector(v, lanes<std::uint32_t, N>);
}

template <std::size_t N>
TUTTI_INLINE void store_low_halves(lanes<std::uint32_t, N> v, std::byte* to) {  // of values below 65536
#if TUTTI_VECTOR_BYTES >= 64
  if constexpr (N == 16)
    return store((lanes<std::uint16_t, N>)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)v), to);
#endif
#if TUTTI_VECTOR_BYTES >= 32
  if constexpr (N == 8) {
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)v, (__m256i)v), 0x08);
    return store((lanes<std::uint16_t, N>)_mm256_castsi256_si128(packed), to);
  }
#endif
  store(__builtin_convertvector(v, lanes<std::uint16_t, N>), to);
}

// The NaN that an addition of two NaNs returns depends on the compiler's order of the operands.
template <class V>
TUTTI_INLINE V without_payload(V v) {
  using T = std::remove_cvref_t<decltype(v[0])>;
  if constexpr (std::is_floating_point_v<T>) {
    constexpr T nan = sizeof(T) == 4 ? static_cast<T>(__builtin_nanf("")) : static_cast<T>(__builtin_nan(""));
    return v != v ? V{} + nan : v;
  }
  return v;
}

// Elements that are computed in the type that they are stored in.
template <class T>
struct plain {
  using computed = T;
  static constexpr element_type type = detail::element_type_of<T>();
  static constexpr std::size_t bytes = sizeof(T);
  static constexpr std::size_t width = 1;  // computed values in an element

  template <std::size_t N>
  TUTTI_INLINE lanes<T, N> read(const std::byte* from) {
    return load<lanes<T, N>>(from);
  }
  template <std::size_t N>
  TUTTI_INLINE void write(lanes<T, N> v, std::byte* to) {
    store(v, to);
  }
  template <std::size_t N>
  TUTTI_INLINE void write_result(lanes<T, N> v, std::byte* to) {  // a NaN without its payload
    store(without_payload(v), to);
  }
};

template <class T>
struct complex_pair : plain<T> {
  static constexpr element_type type = detail::element_type_of<std::complex<T>>();
  static constexpr std::size_t width = 2;  // real, imaginary
};

// float16 and bfloat16 are computed as float; the conversions are those of <tutti/half.hpp>.
struct half_element {
  using computed = float;
  static constexpr std::size_t bytes = 2;
  static constexpr std::size_t width = 1;
};

struct bfloat16_element : half_element {
  static constexpr element_type type = element_type::bfloat16;

  template <std::size_t N>
  TUTTI_INLINE lanes<float, N> read(const std::byte* from) {
    return (lanes<float, N>)(load_zero_extended<N>(from) << 16);
  }
  template <std::size_t N>
  TUTTI_INLINE void write(lanes<float, N> v, std::byte* to) {
    const auto bits = (lanes<std::uint32_t, N>)v;
    const auto rounded = v != v ? bits | 0x400000 : bits + 0x7fff + ((bits >> 16) & 1);
    store_low_halves<N>(rounded >> 16, to);
  }
  template <std::size_t N>
  TUTTI_INLINE void write_result(lanes<float, N> v, std::byte* to) {
    store_low_halves<N>(rounded_result<N>(v) >> 16, to);
  }

  // 2 N elements, of which every other one goes to `even`: a mask or a shift each, where elements in their
  // order have to be spread over two vectors and packed again.
  template <std::size_t N>
  TUTTI_INLINE void read_pair(const std::byte* from, lanes<float, N>& even, lanes<float, N>& odd) {
    const auto both = load<lanes<std::uint32_t, N>>(from);
    even = (lanes<float, N>)(both << 16);
    odd = (lanes<float, N>)(both & 0xffff0000);
  }
  template <std::size_t N>
  TUTTI_INLINE void write_result_pair(lanes<float, N> even, lanes<float, N> odd, std::byte* to) {
    store((rounded_result<N>(even) >> 16) | (rounded_result<N>(odd) & 0xffff0000), to);
  }

 private:
  template <std::size_t N>
  TUTTI_INLINE lanes<std::uint32_t, N> rounded_result(lanes<float, N> v) {
    const auto bits = (lanes<std::uint32_t, N>)v;
    const auto rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return v != v ? rounded - rounded + 0x7fc00000 : rounded;
  }
};

struct float16_element : half_element {
  static constexpr element_type type = element_type::float16;

  template <std::size_t N>
  TUTTI_INLINE lanes<float, N> read(const std::byte* from) {
#if TUTTI_VECTOR_BYTES >= 64
    if constexpr (N == 16)
      return (lanes<float, N>)_mm512_maskz_cvtph_ps(0xffff, (__m256i)load<lanes<std::uint16_t, N>>(from));
#endif
#if TUTTI_VECTOR_BYTES >= 32
    if constexpr (N == 8)
      return (lanes<float, N>)_mm256_cvtph_ps((__m128i)load<lanes<std::uint16_t, N>>(from));
#endif
    using F = lanes<float, N>;
    using U = lanes<std::uint32_t, N>;
    const U half = load_zero_extended<N>(from);
    const U sign = (half & 0x8000) << 16;
    const U magnitude = (half & 0x7fff) << 13;  // exponent and fraction at a float's positions
    const U normal = magnitude + (112U << 23);
    // A fraction without an exponent gets the smallest one, which is then subtracted again.
    const U subnormal = (U)((F)(magnitude + (113U << 23)) - (F)(U{} + (113U << 23)));
    const U special = (normal + (112U << 23)) | (magnitude > (31U << 23) ? U{} + 0x400000 : U{});
    return (F)(sign | (magnitude < (1U << 23) ? subnormal : magnitude >= (31U << 23) ? special : normal));
  }
  template <std::size_t N>
  TUTTI_INLINE void write(lanes<float, N> v, std::byte* to) {
#if TUTTI_VECTOR_BYTES >= 64
    if constexpr (N == 16)
      return store((lanes<std::uint16_t, N>)_mm512_maskz_cvtps_ph(0xffff, (__m512)v, 0), to);
#endif
#if TUTTI_VECTOR_BYTES >= 32
    if constexpr (N == 8) return store((lanes<std::uint16_t, N>)_mm256_cvtps_ph((__m256)v, 0), to);
#endif
    using F = lanes<float, N>;
    using U = lanes<std::uint32_t, N>;
    const U bits = (U)v;
    const U sign = (bits >> 16) & 0x8000;
    const U magnitude = bits & 0x7fffffff;
    const U normal = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // In the sum with 0.5 the last bit has the value of the smallest half, so the addition rounds.
    const U subnormal = (U)((F)magnitude + 0.5F) - (U)(F{} + 0.5F);
    const U special = magnitude > 0x7f800000 ? 0x7e00 | ((magnitude >> 13) & 0x3ff) : U{} + 0x7c00;
    const U rounded = magnitude < 0x38800000 ? subnormal : magnitude >= 0x47800000 ? special : normal;
    store_low_halves<N>(sign | rounded, to);
  }
  template <std::size_t N>
  TUTTI_INLINE void write_result(lanes<float, N> v, std::byte* to) {
    write<N>(without_payload(v), to);
  }
};

}  // namespace
}  // namespace tutti::coll
