// SPDX-License-Identifier: Apache-2.0
// Reductions of elements whose type is known at run time.
//
// A reduction of all ranks prepares each rank's input, combines the inputs in pairs or all at once, and
// finishes the result. Sums of halves are rounded at each write. To round once, widen the prepared input,
// combine and finish floats, and narrow the result:
//
//   const element_type type = accumulator_of(op, call.type);   // float32 for sums of halves
//
// Every function works element by element: a result may overwrite an input of the same element type. combine
// and reduce_all throw only what a user's reduction throws. Nothing needs to be aligned, except the elements of a
// user's reduction. Results do not depend on the instruction set.
#pragma once

#include <cstddef>
#include <span>
#include <tutti/reduce_op.hpp>

namespace tutti::coll {

using detail::bytes_of;

// The type for partial results, where memory allows: float32 for rounding reductions of halves, otherwise
// `type` itself.
element_type accumulator_of(const detail::reduction& op, element_type type) noexcept;

// Prepares an input before the first combine: out[i] = in[i], multiplied by this rank's factor for
// premul_sum. `out` is `in` or does not overlap it. For halves, `type` may be float32 with the widened
// elements.
void prepare(const detail::reduction& op, element_type type, const void* in, void* out, std::size_t count,
             std::size_t element_bytes) noexcept;

// out[i] = op(left[i], right[i]). `out` may be `left` or `right`. The order of operands matters for a user's
// reduction: algorithms pass the block of the lower ranks as `left`. The built-in ones do not depend on it.
void combine(const detail::reduction& op, element_type type, const void* left, const void* right, void* out,
             std::size_t count);

// Finishes a result after the last combine: avg divides by the number of ranks.
void finish(const detail::reduction& op, element_type type, void* data, std::size_t count,
            int ranks) noexcept;

// Reduces the prepared inputs of all ranks, and finishes, in one pass: out[i] = op(...op(op(inputs[0][i],
// inputs[1][i]), inputs[2][i])...). Halves are rounded once, and their average does not overflow where the sum would.
// `out` may be one of the inputs, of which there is at least one.
void reduce_all(const detail::reduction& op, element_type type, std::span<const void* const> inputs,
                void* out, std::size_t count);

// ---- the loops over elements, one set for each instruction set; all sets give bit for bit the same results ----

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
  // Convert between half and float: out[i] = in[i].
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
