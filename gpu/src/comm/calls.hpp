// SPDX-License-Identifier: Apache-2.0
// What the backends ask of a call.
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
// A collective of even blocks, or of whole vectors, which can be cut into chunks.
bool has_chunks(const call& c) noexcept;
// Elements of one rank's part: of all_gather those of `in`, of reduce_scatter those of `out`, ...
std::size_t block_of(const call& c, int size) noexcept;
// The factor of a premul_sum, of elements whose factors fit into a double.
double factor_in(const tutti::detail::reduction& op, element_type type) noexcept;

}  // namespace tutti::gpu::detail
