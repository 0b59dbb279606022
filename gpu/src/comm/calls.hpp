// SPDX-License-Identifier: Apache-2.0
// Properties of a call that the backends need.
#pragma once

#include "device/work_state.hpp"

#include <cstddef>
#include <memory>
#include <tutti/detail/operation_state.hpp>

namespace tutti::gpu::detail {

using tutti::detail::shape;

inline bool is_message(operation_kind kind) noexcept {
  return row_of(kind).of == tutti::detail::family::message;
}
// Whether the call is a collective of equal blocks or whole vectors, which can be split into chunks.
bool has_chunks(const call& c) noexcept;
// Elements of one rank's block, such as `in` of all_gather and `out` of reduce_scatter.
std::size_t block_of(const call& c, int size) noexcept;
// The factor of a premul_sum. Requires an element type whose factors fit into a double.
double factor_in(const tutti::detail::reduction& op, element_type type) noexcept;

}  // namespace tutti::gpu::detail
