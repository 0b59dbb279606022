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
  switch (kind) {
    case reduce_kind::none:
      return "none";
    case reduce_kind::sum:
      return "sum";
    case reduce_kind::product:
      return "product";
    case reduce_kind::min:
      return "min";
    case reduce_kind::max:
      return "max";
    case reduce_kind::band:
      return "band";
    case reduce_kind::bor:
      return "bor";
    case reduce_kind::bxor:
      return "bxor";
    case reduce_kind::avg:
      return "avg";
    case reduce_kind::user:
      return "user's";
    case reduce_kind::premul_sum:
      return "premul_sum";
  }
  return "?";
}

}  // namespace tutti
