// SPDX-License-Identifier: Apache-2.0
// Names of element types and reductions, as error texts show them.
#include <tutti/reduce_op.hpp>

namespace tutti {

const char* name_of(element_type type) noexcept {
  switch (type) {
    case element_type::opaque:
      return "bytes";
    case element_type::boolean:
      return "bool";
    case element_type::int8:
      return "int8";
    case element_type::uint8:
      return "uint8";
    case element_type::int16:
      return "int16";
    case element_type::uint16:
      return "uint16";
    case element_type::int32:
      return "int32";
    case element_type::uint32:
      return "uint32";
    case element_type::int64:
      return "int64";
    case element_type::uint64:
      return "uint64";
    case element_type::float32:
      return "float";
    case element_type::float64:
      return "double";
    case element_type::float16:
      return "float16";
    case element_type::bfloat16:
      return "bfloat16";
    case element_type::complex_float32:
      return "complex<float>";
    case element_type::complex_float64:
      return "complex<double>";
  }
  return "?";
}

const char* name_of(reduce_kind kind) noexcept {
  // False for the kind in a damaged record.
  return static_cast<std::size_t>(kind) < std::size(detail::reduction_rows) ? detail::row_of(kind).name : "?";
}

}  // namespace tutti
