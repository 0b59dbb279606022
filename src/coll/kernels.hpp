// SPDX-License-Identifier: Apache-2.0
// The loops over elements, one set for each instruction set. All sets give the same results, bit for bit.
#pragma once

#include <cstddef>
#include <span>
#include <tutti/reduce_op.hpp>

namespace tutti::coll {

// out[i] = inputs[0][i] op inputs[1][i] op ..., from the left; for avg the sum is divided by `ranks` before
// it is rounded to the element's type. `out` may be one of the inputs. Nothing needs to be aligned.
struct fold_call {
  std::span<const void* const> inputs;
  void* out;
  std::size_t count;
  int ranks;
};

// One instruction set's loops. Each exists for the types on its right; for others it does nothing. reduce.cpp
// brings every other type and reduction down to these.
struct kernels {
  const char* name;
  bool (*usable)() noexcept;  // here, by this processor and system
  // sum, product: unsigned, floating and half, product of complex; min, max: integers, floating and half;
  // band, bor, bxor: uint8; avg: floating and half.
  void (*fold)(reduce_kind kind, element_type type, const fold_call& call) noexcept;
  // out[i] = in[i] * factor, in[i] / divisor: unsigned (not divided), floating and half. `out` may be `in`.
  // The factor is of the element's type, float for halves.
  void (*multiply)(element_type type, const void* factor, const void* in, void* out,
                   std::size_t count) noexcept;
  void (*divide)(element_type type, int divisor, const void* in, void* out, std::size_t count) noexcept;
  // Between half and float.
  void (*widen)(element_type type, const void* in, float* out, std::size_t count) noexcept;
  void (*narrow)(element_type type, const float* in, void* out, std::size_t count) noexcept;
};

extern const kernels baseline_kernels;  // what every processor of this architecture has: SSE2 on x86-64
#if defined(__x86_64__)
extern const kernels avx2_kernels;
extern const kernels avx512_kernels;
#endif

// Those in the library, from the plainest to the fastest; the first is always usable.
std::span<const kernels* const> all_kernels() noexcept;
// Those that reductions run with: the fastest usable ones unless others were chosen. Choosing is for tests
// and measurements; no reduction may be running.
const kernels& current_kernels() noexcept;
void choose_kernels(const kernels& chosen) noexcept;

}  // namespace tutti::coll
