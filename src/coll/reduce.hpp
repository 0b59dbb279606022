// SPDX-License-Identifier: Apache-2.0
// Reducing elements of run-time type.
#pragma once

#include <cstddef>
#include <tutti/buffer.hpp>
#include <tutti/reduce_op.hpp>

namespace tutti::coll {

// out[i] = op(left[i], right[i]). `out` may be `left` or `right`. The order of the operands matters to bits (which zero
// or NaN a minimum gives): algorithms pass the block of the lower ranks as `left`.
void combine(const detail::reduction& op, element_type type, const void* left, const void* right, void* out,
             std::size_t count) noexcept;

// The step after the last combine: avg divides by the number of ranks.
void finish(const detail::reduction& op, element_type type, void* data, std::size_t count, int ranks) noexcept;

}  // namespace tutti::coll
