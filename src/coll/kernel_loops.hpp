// SPDX-License-Identifier: Apache-2.0
// The loops over elements, written once with the vector types that g++ and clang++ share. Each kernels_*.cpp
// compiles them for its instruction set, which it describes with macros:
//   TUTTI_KERNELS         the table to define
//   TUTTI_KERNELS_NAME, TUTTI_KERNELS_USABLE   its first members
//   TUTTI_VECTOR_BYTES    the size of a vector
//   TUTTI_KERNELS_TARGET  the instructions; without it those of the whole library
//
// Only code of this file may be compiled for more instructions than the library. The linker could otherwise
// merge such a function with one of the library, which would then fail on a lesser processor. Hence everything
// is inlined in one unnamed namespace, and only types of the standard library are used.
//
// All instruction sets give the same bits: nothing is contracted (-ffp-contract=off), the remainder runs the
// same code as the vectors, and NaNs are replaced at the end.
#pragma once

#include "coll/reduce.hpp"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <tutti/reduce_op.hpp>
#include <type_traits>
#include <utility>

#if defined(TUTTI_KERNELS_TARGET)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target(TUTTI_KERNELS_TARGET))), apply_to = function)
#else
#define TUTTI_PRAGMA(text) _Pragma(#text)
#define TUTTI_PRAGMA_TARGET(instructions) TUTTI_PRAGMA(GCC target instructions)
#pragma GCC push_options
TUTTI_PRAGMA_TARGET(TUTTI_KERNELS_TARGET)
#endif
#endif

#define TUTTI_INLINE [[gnu::always_inline]] static inline
#define TUTTI_INLINE_LAMBDA __attribute__((always_inline))

namespace tutti::coll {
namespace {

// ---- vectors, and how each element type is loaded into and stored from them ----

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

// ---- loops ----

constexpr std::size_t unrolled = 4;  // vectors in flight

// (a + bi)(c + di) for neighbouring lanes. Lanes that are assigned one by one take g++ 14 ten times the instructions.
template <class T, std::size_t... I>
TUTTI_INLINE lanes<T, sizeof...(I)> complex_product(lanes<T, sizeof...(I)> a, lanes<T, sizeof...(I)> b,
                                                    std::index_sequence<I...>) {
  using bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  using U = lanes<bits, sizeof...(I)>;
  constexpr U sign = {(I % 2 == 0 ? bits{1} << (sizeof(T) * 8 - 1) : 0)...};
  const auto real = __builtin_shufflevector(a, a, (I & ~std::size_t{1})...);
  const auto imaginary = __builtin_shufflevector(a, a, (I | 1)...);
  const auto swapped = __builtin_shufflevector(b, b, (I ^ 1)...);
  return real * b + (lanes<T, sizeof...(I)>)((U)(imaginary * swapped) ^ sign);
}

template <class Element, reduce_kind Kind, std::size_t N>
TUTTI_INLINE lanes<typename Element::computed, N> apply(lanes<typename Element::computed, N> a,
                                                        lanes<typename Element::computed, N> b) {
  using T = typename Element::computed;
  if constexpr (Kind == reduce_kind::sum || Kind == reduce_kind::avg) {
    return a + b;
  } else if constexpr (Kind == reduce_kind::product) {
    if constexpr (Element::width == 2)
      return complex_product<T>(a, b, std::make_index_sequence<N>());
    else
      return a * b;
  } else if constexpr (Kind == reduce_kind::band) {
    return a & b;
  } else if constexpr (Kind == reduce_kind::bor) {
    return a | b;
  } else if constexpr (Kind == reduce_kind::bxor) {
    return a ^ b;
  } else {
    const auto further = Kind == reduce_kind::min ? b < a : a < b;
    if constexpr (std::is_floating_point_v<T>) {
      // A NaN in either operand gives a NaN, because comparisons with it are false. Equal numbers that differ
      // are zeros: min takes either sign, max the sign of both.
      using M = decltype(a < b);
      const auto chosen = (further | (b != b)) ? b : a;
      const auto equal = Kind == reduce_kind::min ? (M)a | (M)b : (M)a & (M)b;
      return a == b ? (lanes<T, N>)equal : chosen;
    } else {
      return further ? b : a;
    }
  }
}

// The elements that follow each other at `from`, in whichever order this one and write_results agree on.
template <class Element, std::size_t N, std::size_t Unroll>
TUTTI_INLINE void read_all(const std::byte* from, lanes<typename Element::computed, N> (&all)[Unroll]) {
#pragma GCC unroll 4
  for (std::size_t u = 0; u < Unroll; ++u) {
    const std::byte* const at = from + u * N * Element::bytes;
    if constexpr (Unroll % 2 == 0 && requires { Element::template read_pair<N>(at, all[0], all[1]); }) {
      if (u % 2 == 0) Element::template read_pair<N>(at, all[u], all[u + 1]);
    } else {
      all[u] = Element::template read<N>(at);
    }
  }
}
template <class Element, std::size_t N, std::size_t Unroll>
TUTTI_INLINE void write_results(const lanes<typename Element::computed, N> (&all)[Unroll], std::byte* to) {
#pragma GCC unroll 4
  for (std::size_t u = 0; u < Unroll; ++u) {
    std::byte* const at = to + u * N * Element::bytes;
    if constexpr (Unroll % 2 == 0 &&
                  requires { Element::template write_result_pair<N>(all[0], all[1], at); }) {
      if (u % 2 == 0) Element::template write_result_pair<N>(all[u], all[u + 1], at);
    } else {
      Element::template write_result<N>(all[u], at);
    }
  }
}

// Processes blocks that fill `Unroll` vectors of N values. `Inputs` is the number of inputs; 0 for any
// number.
template <class Element, reduce_kind Kind, std::size_t Inputs, std::size_t N, std::size_t Unroll>
TUTTI_INLINE void fold_blocks(const std::byte* const* inputs, std::size_t n, std::byte* out,
                              std::size_t count, typename Element::computed divisor, std::size_t& i) {
  using V = lanes<typename Element::computed, N>;
  if constexpr (Inputs != 0) n = Inputs;
  for (; count - i >= N * Unroll; i += N * Unroll) {
    const std::size_t at = i * Element::bytes;
    V all[Unroll];
    read_all<Element, N>(inputs[0] + at, all);
#pragma GCC unroll 1
    for (std::size_t k = 1; k < n; ++k) {
      V theirs[Unroll];
      read_all<Element, N>(inputs[k] + at, theirs);
#pragma GCC unroll 4
      for (std::size_t u = 0; u < Unroll; ++u) all[u] = apply<Element, Kind, N>(all[u], theirs[u]);
    }
    if constexpr (Kind == reduce_kind::avg) {
#pragma GCC unroll 4
      for (std::size_t u = 0; u < Unroll; ++u) all[u] = all[u] / divisor;
    }
    write_results<Element, N>(all, out + at);
  }
}

template <class Element, reduce_kind Kind, std::size_t Inputs>
TUTTI_INLINE void fold_inputs(const std::byte* const* inputs, const fold_call& call) {
  using T = typename Element::computed;
  constexpr std::size_t whole = TUTTI_VECTOR_BYTES / sizeof(T);
  const std::size_t count = call.count * Element::width;
  const std::size_t n = call.inputs.size();
  const auto out = static_cast<std::byte*>(call.out);
  const T divisor = static_cast<T>(call.ranks);
  std::size_t i = 0;
  fold_blocks<Element, Kind, Inputs, whole, unrolled>(inputs, n, out, count, divisor, i);
  fold_blocks<Element, Kind, Inputs, whole, 1>(inputs, n, out, count, divisor, i);
  if constexpr (TUTTI_VECTOR_BYTES > 16)
    fold_blocks<Element, Kind, Inputs, 16 / sizeof(T), 1>(inputs, n, out, count, divisor, i);
  fold_blocks<Element, Kind, Inputs, Element::width, 1>(inputs, n, out, count, divisor, i);
}

template <class Element, reduce_kind Kind>
void fold(const fold_call& call) noexcept {
  if (call.inputs.size() == 2) {
    const std::byte* const two[] = {static_cast<const std::byte*>(call.inputs[0]),
                                    static_cast<const std::byte*>(call.inputs[1])};
    return fold_inputs<Element, Kind, 2>(two, call);
  }
  fold_inputs<Element, Kind, 0>(reinterpret_cast<const std::byte* const*>(call.inputs.data()), call);
}

template <class... Element>
struct element_list {
  // Calls f with the element of this type.
  template <class F>
  TUTTI_INLINE void with(element_type type, const F& f) {
    (void)((type == Element::type && (f(Element()), true)) || ...);
  }
};
using all_elements =
    element_list<plain<std::uint8_t>, plain<std::uint16_t>, plain<std::uint32_t>, plain<std::uint64_t>,
                 plain<std::int8_t>, plain<std::int16_t>, plain<std::int32_t>, plain<std::int64_t>,
                 plain<float>, plain<double>, float16_element, bfloat16_element, complex_pair<float>,
                 complex_pair<double>>;

template <class Element>
constexpr bool is_real = Element::width == 1 && std::is_floating_point_v<typename Element::computed>;
template <class Element>
constexpr bool is_unsigned = std::is_unsigned_v<typename Element::computed>;

// Whether there is a loop for it: reduce.cpp reduces the other types to these.
template <class Element, reduce_kind Kind>
constexpr bool has_fold() {
  constexpr detail::reduction_row row = detail::row_of(Kind);
  if constexpr (row.loops == detail::loops_over::nothing) return false;
  if constexpr (row.loops == detail::loops_over::bytes) return std::is_same_v<Element, plain<std::uint8_t>>;
  if constexpr (Element::width == 2) return row.complex && row.loops == detail::loops_over::unsigned_ones;
  if constexpr (is_real<Element>) return true;
  return row.loops == detail::loops_over::elements || (is_unsigned<Element> && row.integers);
}

template <reduce_kind Kind>
void fold_of_type(element_type type, const fold_call& call) noexcept {
  all_elements::with(type, [&]<class Element>(Element) {
    if constexpr (has_fold<Element, Kind>()) fold<Element, Kind>(call);
  });
}

void fold_of_kind(reduce_kind kind, element_type type, const fold_call& call) noexcept {
  const auto find = [&]<std::size_t... Kind>(std::index_sequence<Kind...>) {
    (void)((kind == static_cast<reduce_kind>(Kind) &&
            (fold_of_type<static_cast<reduce_kind>(Kind)>(type, call), true)) ||
           ...);
  };
  find(std::make_index_sequence<std::size(detail::reduction_rows)>());
}

// out[i] = change(in[i]).
template <class From, class To, std::size_t N, class Change>
TUTTI_INLINE void map_blocks(const std::byte* in, std::byte* out, std::size_t count, Change change,
                             std::size_t& i) {
  for (; count - i >= N; i += N)
    To::template write<N>(change(From::template read<N>(in + i * From::bytes)), out + i * To::bytes);
}

template <class From, class To, class Change>
TUTTI_INLINE void map(const void* in, void* out, std::size_t count, Change change) {
  const auto from = static_cast<const std::byte*>(in);
  const auto to = static_cast<std::byte*>(out);
  std::size_t i = 0;
  map_blocks<From, To, TUTTI_VECTOR_BYTES / sizeof(typename From::computed)>(from, to, count, change, i);
  map_blocks<From, To, 1>(from, to, count, change, i);
}

constexpr auto unchanged = [](auto v) TUTTI_INLINE_LAMBDA { return v; };

void multiply_type(element_type type, const void* factor, const void* in, void* out,
                   std::size_t count) noexcept {
  all_elements::with(type, [&]<class Element>(Element) {
    if constexpr (is_unsigned<Element> || is_real<Element>) {
      typename Element::computed by;
      __builtin_memcpy(&by, factor, sizeof(by));
      map<Element, Element>(in, out, count,
                            [by](auto v) TUTTI_INLINE_LAMBDA { return without_payload(v * by); });
    }
  });
}

void widen_type(element_type type, const void* in, float* out, std::size_t count) noexcept {
  if (type == element_type::float16) map<float16_element, plain<float>>(in, out, count, unchanged);
  if (type == element_type::bfloat16) map<bfloat16_element, plain<float>>(in, out, count, unchanged);
}

void narrow_type(element_type type, const float* in, void* out, std::size_t count) noexcept {
  if (type == element_type::float16) map<plain<float>, float16_element>(in, out, count, unchanged);
  if (type == element_type::bfloat16) map<plain<float>, bfloat16_element>(in, out, count, unchanged);
}

}  // namespace
}  // namespace tutti::coll

#if defined(TUTTI_KERNELS_TARGET)
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
#undef TUTTI_INLINE
#undef TUTTI_INLINE_LAMBDA

namespace tutti::coll {
namespace {

bool usable_here() noexcept { return TUTTI_KERNELS_USABLE; }

}  // namespace

const kernels TUTTI_KERNELS{TUTTI_KERNELS_NAME, usable_here, fold_of_kind,
                            multiply_type,      widen_type,  narrow_type};

}  // namespace tutti::coll
