// SPDX-License-Identifier: Apache-2.0
// Reducing elements of run-time type.
//
// A reduction of all ranks is: prepare each rank's input, combine them in pairs or all at once, finish the
// result. What comes out of sums of halves is rounded whenever it is written; to round once, widen the
// prepared input, combine and finish the floats, and narrow the result:
//
//   const element_type type = accumulator_of(op, call.type);   // float32 for sums of halves
//
// Every function works element by element: a result may be written over an input of the same element type.
// combine, combine_all and reduce_all throw what a user's reduction throws, and nothing else.
// Nothing needs to be aligned, but for the elements of a user's reduction. Instruction sets make no
// difference to the results.
#pragma once

#include <cstddef>
#include <span>
#include <tutti/reduce_op.hpp>

namespace tutti::coll {

// The size of an element; 0 for opaque, whose size only the caller knows.
std::size_t bytes_of(element_type type) noexcept;

// The type to keep partial results in, where memory allows: float32 for those reductions of halves that
// round, else `type` itself.
element_type accumulator_of(const detail::reduction& op, element_type type) noexcept;

// Between a half type and float: out[i] = in[i]. For other types nothing happens.
void widen(element_type half, const void* in, float* out, std::size_t count) noexcept;
void narrow(element_type half, const float* in, void* out, std::size_t count) noexcept;

// The step before the first combine: out[i] = in[i], for premul_sum multiplied by this rank's factor. `out`
// is `in` or apart from it. Of halves, `type` may be float32 with the widened elements.
void prepare(const detail::reduction& op, element_type type, const void* in, void* out, std::size_t count,
             std::size_t element_bytes) noexcept;

// out[i] = op(left[i], right[i]). `out` may be `left` or `right`. For a user's reduction the order of the
// operands matters: algorithms pass the block of the lower ranks as `left`. The built-in ones do not depend
// on it.
void combine(const detail::reduction& op, element_type type, const void* left, const void* right, void* out,
             std::size_t count);

// out[i] = op(...op(op(inputs[0][i], inputs[1][i]), inputs[2][i])...), in one pass, halves rounded once.
// `out` may be one of the inputs, of which there is at least one. Two inputs: the same as `combine`.
void combine_all(const detail::reduction& op, element_type type, std::span<const void* const> inputs,
                 void* out, std::size_t count);

// The step after the last combine: avg divides by the number of ranks.
void finish(const detail::reduction& op, element_type type, void* data, std::size_t count,
            int ranks) noexcept;

// combine_all of the prepared inputs of all ranks, and finish, in one pass: the average of halves is rounded
// once, and does not overflow where the sum would.
void reduce_all(const detail::reduction& op, element_type type, std::span<const void* const> inputs,
                void* out, std::size_t count);

}  // namespace tutti::coll
