// SPDX-License-Identifier: Apache-2.0
// Reductions of elements whose type is known at run time.
//
// A reduction of all ranks prepares each rank's input, combines the inputs in pairs or all at once, and
// finishes the result. Sums of halves are rounded at each write. To round once, widen the prepared input,
// combine and finish floats, and narrow the result:
//
//   const element_type type = accumulator_of(op, call.type);   // float32 for sums of halves
//
// Every function works element by element: a result may overwrite an input of the same element type. combine,
// combine_all and reduce_all throw only what a user's reduction throws. Nothing needs to be aligned, except
// the elements of a user's reduction. Results do not depend on the instruction set.
#pragma once

#include <cstddef>
#include <span>
#include <tutti/reduce_op.hpp>

namespace tutti::coll {

using detail::bytes_of;

// The type for partial results, where memory allows: float32 for rounding reductions of halves, otherwise
// `type` itself.
element_type accumulator_of(const detail::reduction& op, element_type type) noexcept;

// Convert between a half type and float: out[i] = in[i]. Nothing happens for other types.
void widen(element_type half, const void* in, float* out, std::size_t count) noexcept;
void narrow(element_type half, const float* in, void* out, std::size_t count) noexcept;

// Prepares an input before the first combine: out[i] = in[i], multiplied by this rank's factor for
// premul_sum. `out` is `in` or does not overlap it. For halves, `type` may be float32 with the widened
// elements.
void prepare(const detail::reduction& op, element_type type, const void* in, void* out, std::size_t count,
             std::size_t element_bytes) noexcept;

// out[i] = op(left[i], right[i]). `out` may be `left` or `right`. The order of operands matters for a user's
// reduction: algorithms pass the block of the lower ranks as `left`. The built-in ones do not depend on it.
void combine(const detail::reduction& op, element_type type, const void* left, const void* right, void* out,
             std::size_t count);

// out[i] = op(...op(op(inputs[0][i], inputs[1][i]), inputs[2][i])...), in one pass, rounding halves once.
// `out` may be one of the inputs, of which there is at least one. Two inputs give the same as `combine`.
void combine_all(const detail::reduction& op, element_type type, std::span<const void* const> inputs,
                 void* out, std::size_t count);

// Finishes a result after the last combine: avg divides by the number of ranks.
void finish(const detail::reduction& op, element_type type, void* data, std::size_t count,
            int ranks) noexcept;

// combine_all of the prepared inputs of all ranks, and finish, in one pass. The average of halves is rounded
// once, and does not overflow where the sum would.
void reduce_all(const detail::reduction& op, element_type type, std::span<const void* const> inputs,
                void* out, std::size_t count);

}  // namespace tutti::coll
