// SPDX-License-Identifier: Apache-2.0
// Names of element types and reductions, as error texts show them.
#include <cstddef>
#include <iterator>
#include <tutti/reduce_op.hpp>

namespace tutti {

const char* name_of(element_type type) noexcept {
  // In the order of element_type.
  static constexpr const char* names[] = {
      "bytes", "bool",   "int8",  "uint8",  "int16",   "uint16",   "int32",          "uint32",
      "int64", "uint64", "float", "double", "float16", "bfloat16", "complex<float>", "complex<double>"};
  static_assert(std::size(names) == static_cast<std::size_t>(element_type::complex_float64) + 1);
  return static_cast<std::size_t>(type) < std::size(names) ? names[static_cast<std::size_t>(type)] : "?";
}

const char* name_of(reduce_kind kind) noexcept {
  // False for the kind in a damaged record.
  return static_cast<std::size_t>(kind) < std::size(detail::reduction_rows) ? detail::row_of(kind).name : "?";
}

}  // namespace tutti
