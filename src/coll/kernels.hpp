// SPDX-License-Identifier: Apache-2.0
// The loops over elements, one set for each instruction set. All sets give bit for bit the same results.
#pragma once

#include <cstddef>
#include <span>
#include <tutti/reduce_op.hpp>

namespace tutti::coll {

// out[i] = inputs[0][i] op inputs[1][i] op ..., from the left. avg divides the sum by `ranks` before rounding
// to the element type. `out` may be one of the inputs. Nothing needs to be aligned.
struct fold_call {
  std::span<const void* const> inputs;
  void* out;
  std::size_t count;
  int ranks;
};

// The loops of one instruction set. Each exists for the types in its comment, and does nothing for others.
// reduce.cpp reduces all other types and reductions to these.
struct kernels {
  const char* name;
  bool (*usable)() noexcept;  // by this processor and system
  // sum, product: unsigned, floating and half, product also complex; min, max: integers, floating and half;
  // band, bor, bxor: uint8; avg: floating and half.
  void (*fold)(reduce_kind kind, element_type type, const fold_call& call) noexcept;
  // out[i] = in[i] * factor: unsigned, floating and half. `out` may be `in`. The factor has the element type,
  // float for halves.
  void (*multiply)(element_type type, const void* factor, const void* in, void* out,
                   std::size_t count) noexcept;
  // Convert between half and float.
  void (*widen)(element_type type, const void* in, float* out, std::size_t count) noexcept;
  void (*narrow)(element_type type, const float* in, void* out, std::size_t count) noexcept;
};

extern const kernels baseline_kernels;  // for every processor of this architecture: SSE2 on x86-64
#if defined(__x86_64__)
extern const kernels avx2_kernels;
extern const kernels avx512_kernels;
#endif

// The sets in the library, from the plainest to the fastest; the first is always usable.
std::span<const kernels* const> all_kernels() noexcept;
// The set that reductions use: the fastest usable one unless another was chosen. Choosing is for tests and
// measurements; no reduction may be running.
const kernels& current_kernels() noexcept;
void choose_kernels(const kernels& chosen) noexcept;

}  // namespace tutti::coll
