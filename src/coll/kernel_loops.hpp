// SPDX-License-Identifier: Apache-2.0
// The loops over elements, written once with the vector types that g++ and clang++ share. Each kernels_*.cpp
// compiles them for its instruction set, which it describes with macros:
//   TUTTI_KERNELS         the table to define
//   TUTTI_KERNELS_NAME, TUTTI_KERNELS_USABLE   its first members
//   TUTTI_VECTOR_BYTES    the size of a vector
//   TUTTI_KERNELS_TARGET  the instructions; without it those of the whole library
//
// Only code of this file and of kernel_elements.hpp may be compiled for more instructions than the library.
// The linker could otherwise merge such a function with one of the library, which would then fail on a lesser
// processor. Hence everything is inlined in one unnamed namespace, and only types of the standard library are
// used.
//
// All instruction sets give the same bits: nothing is contracted (-ffp-contract=off), the remainder runs the
// same code as the vectors, and NaNs are replaced at the end.
#pragma once

#include "coll/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>
#if defined(TUTTI_KERNELS_TARGET)
#include <immintrin.h>
#endif

#if defined(TUTTI_KERNELS_TARGET)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target(TUTTI_KERNELS_TARGET))), apply_to = function)
#else
#define TUTTI_PRAGMA(text) _Pragma(#text)
#define TUTTI_PRAGMA_TARGET(instructions) TUTTI_PRAGMA(GCC target instructions)
#pragma GCC push_options
TUTTI_PRAGMA_TARGET(TUTTI_KERNELS_TARGET)
#endif
#endif

#include "coll/kernel_elements.hpp"

namespace tutti::coll {
namespace {

constexpr std::size_t unrolled = 4;  // vectors in flight

// (a + bi)(c + di) for neighbouring lanes.
template <class T, std::size_t N>
TUTTI_INLINE lanes<T, N> complex_product(lanes<T, N> a, lanes<T, N> b) {
  using U = lanes<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>, N>;
  U sign{};
  lanes<T, N> real{}, imaginary{}, swapped{};
#pragma GCC unroll 16
  for (std::size_t i = 0; i < N; i += 2) {
    sign[i] = 1;
    real[i] = real[i + 1] = a[i];
    imaginary[i] = imaginary[i + 1] = a[i + 1];
    swapped[i] = b[i + 1];
    swapped[i + 1] = b[i];
  }
  sign <<= sizeof(T) * 8 - 1;
  return real * b + (lanes<T, N>)((U)(imaginary * swapped) ^ sign);
}

template <class Element, reduce_kind Kind, std::size_t N>
TUTTI_INLINE lanes<typename Element::computed, N> apply(lanes<typename Element::computed, N> a,
                                                        lanes<typename Element::computed, N> b) {
  using T = typename Element::computed;
  if constexpr (Kind == reduce_kind::sum || Kind == reduce_kind::avg) {
    return a + b;
  } else if constexpr (Kind == reduce_kind::product) {
    if constexpr (Element::width == 2)
      return complex_product<T, N>(a, b);
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
