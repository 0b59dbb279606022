// SPDX-License-Identifier: Apache-2.0
// The list of kernels.
#pragma once

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
