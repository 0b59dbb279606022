// SPDX-License-Identifier: Apache-2.0
// Reductions and conversions of elements, compiled for the host and for CUDA: the same arithmetic in the same
// order as on the CPU communicator, so the same bits. Halves are summed as floats and rounded once. A NaN
// result is the positive quiet NaN. The lists of kernels are at the end.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <tutti/half.hpp>
#include <type_traits>

#if defined(__CUDACC__)
#define TUTTI_EVERYWHERE __host__ __device__
#else
#define TUTTI_EVERYWHERE
#endif

namespace tutti::gpu::kernels {

inline constexpr int most_operands = 16;

// Arguments of a launch, passed by value. Reduces all inputs into each output. A conversion has one of each.
struct arguments {
  const void* inputs[most_operands];
  void* outputs[most_operands];
  double factors[most_operands];
  std::uint64_t count;
  int input_count;
  int output_count;
  int ranks;   // avg divides by it
  int scaled;  // premul_sum and conversions: each input is multiplied by its factor first
};

// output[i] = input[i] * factor, rounded once. Both may be the same memory if the types are equal.
inline arguments conversion(const void* input, void* output, double factor, std::uint64_t count) noexcept {
  return {.inputs = {input},
          .outputs = {output},
          .factors = {factor},
          .count = count,
          .input_count = 1,
          .output_count = 1,
          .ranks = 1,
          .scaled = 1};
}

// Integers are summed as they are, halves as float. A conversion multiplies as double if either type is.
template <class From, class To>
using accumulator_t = std::conditional_t<
    std::is_integral_v<From>, From,
    std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>>;

template <class A>
TUTTI_EVERYWHERE inline A canonical(A x) {
  if constexpr (std::is_floating_point_v<A>) {
    return x != x ? std::numeric_limits<A>::quiet_NaN() : x;
  } else {
    return x;
  }
}

// Integers wrap around.
template <class Function>
struct arithmetic {
  template <class A>
  TUTTI_EVERYWHERE static A apply(A a, A b) {
    if constexpr (std::is_floating_point_v<A>) {
      return Function()(a, b);
    } else {
      return static_cast<A>(Function()(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
    }
  }
};
using add = arithmetic<std::plus<>>;
using multiply = arithmetic<std::multiplies<>>;
using bits_and = arithmetic<std::bit_and<>>;
using bits_or = arithmetic<std::bit_or<>>;
using bits_xor = arithmetic<std::bit_xor<>>;
// Gives NaN if either operand is NaN; -0 is less than +0.
template <bool Greatest>
struct extreme {
  template <class A>
  TUTTI_EVERYWHERE static A apply(A a, A b) {
    if constexpr (std::is_floating_point_v<A>) {
      if (a != a) return a;
      if (b != b) return b;
      if (a == b) return std::signbit(a) != Greatest ? a : b;
    }
    return (Greatest ? a < b : b < a) ? b : a;
  }
};
using least = extreme<false>;
using greatest = extreme<true>;

// Elements that are moved together.
template <class T, int Width>
struct alignas(Width == 1 ? alignof(T) : 16) pack {
  T e[Width];
};

// Reduces pack i of all inputs, in order, into all outputs. An average divides before it rounds.
template <class From, class To, class Op, bool Average, int Width = 1>
TUTTI_EVERYWHERE inline void reduce_pack(const arguments& a, std::uint64_t i) {
  using A = accumulator_t<From, To>;
  A all[Width] = {};
  for (int k = 0; k < a.input_count; ++k) {
    const pack<From, Width> in = static_cast<const pack<From, Width>*>(a.inputs[k])[i];
    for (int e = 0; e < Width; ++e) {
      A x = static_cast<A>(in.e[e]);
      // As on the CPU, the product of halves is rounded to float only.
      if (a.scaled != 0) x = multiply::apply(x, static_cast<A>(a.factors[k]));
      all[e] = k == 0 ? x : Op::apply(all[e], x);
    }
  }
  pack<To, Width> out;
  for (int e = 0; e < Width; ++e) {
    if constexpr (Average) all[e] = all[e] / static_cast<A>(a.ranks);
    out.e[e] = static_cast<To>(canonical(all[e]));
  }
  for (int k = 0; k < a.output_count; ++k) static_cast<pack<To, Width>*>(a.outputs[k])[i] = out;
}

}  // namespace tutti::gpu::kernels

// ---- the kernels ----

// Reductions: X(reduction, functor, element type, C++ type, whether it is the average).
#define TUTTI_INTEGER_KERNELS(X, kind, op)  \
  X(kind, op, int8, std::int8_t, false)     \
  X(kind, op, uint8, std::uint8_t, false)   \
  X(kind, op, int16, std::int16_t, false)   \
  X(kind, op, uint16, std::uint16_t, false) \
  X(kind, op, int32, std::int32_t, false)   \
  X(kind, op, uint32, std::uint32_t, false) \
  X(kind, op, int64, std::int64_t, false)   \
  X(kind, op, uint64, std::uint64_t, false)
#define TUTTI_FLOATING_KERNELS(X, kind, op, average) \
  X(kind, op, float32, float, average)               \
  X(kind, op, float64, double, average)              \
  X(kind, op, float16, ::tutti::float16, average)    \
  X(kind, op, bfloat16, ::tutti::bfloat16, average)
#define TUTTI_KERNELS(X)                              \
  TUTTI_INTEGER_KERNELS(X, sum, add)                  \
  TUTTI_FLOATING_KERNELS(X, sum, add, false)          \
  TUTTI_INTEGER_KERNELS(X, product, multiply)         \
  TUTTI_FLOATING_KERNELS(X, product, multiply, false) \
  TUTTI_INTEGER_KERNELS(X, min, least)                \
  TUTTI_FLOATING_KERNELS(X, min, least, false)        \
  TUTTI_INTEGER_KERNELS(X, max, greatest)             \
  TUTTI_FLOATING_KERNELS(X, max, greatest, false)     \
  TUTTI_FLOATING_KERNELS(X, avg, add, true)           \
  TUTTI_INTEGER_KERNELS(X, band, bits_and)            \
  TUTTI_INTEGER_KERNELS(X, bor, bits_or)              \
  TUTTI_INTEGER_KERNELS(X, bxor, bits_xor)

// Conversions: X(element type, C++ type, to element type, to C++ type).
#define TUTTI_CONVERSIONS_FROM(X, from, From) \
  X(from, From, float32, float)               \
  X(from, From, float64, double)              \
  X(from, From, float16, ::tutti::float16)    \
  X(from, From, bfloat16, ::tutti::bfloat16)
#define TUTTI_CONVERSIONS(X)                           \
  TUTTI_CONVERSIONS_FROM(X, float32, float)            \
  TUTTI_CONVERSIONS_FROM(X, float64, double)           \
  TUTTI_CONVERSIONS_FROM(X, float16, ::tutti::float16) \
  TUTTI_CONVERSIONS_FROM(X, bfloat16, ::tutti::bfloat16)
