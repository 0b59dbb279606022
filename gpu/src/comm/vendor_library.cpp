// SPDX-License-Identifier: Apache-2.0
#include "comm/vendor_library.hpp"

namespace tutti::gpu::vendor_abi {

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

int type_of(element_type type) noexcept {
  switch (type) {
    case element_type::int8:
      return int8;
    case element_type::uint8:
      return uint8;
    case element_type::int32:
      return int32;
    case element_type::uint32:
      return uint32;
    case element_type::int64:
      return int64;
    case element_type::uint64:
      return uint64;
    case element_type::float16:
      return float16;
    case element_type::float32:
      return float32;
    case element_type::float64:
      return float64;
    case element_type::bfloat16:
      return bfloat16;
    default:
      return -1;
  }
}

int operation_of(reduce_kind kind) noexcept {
  switch (kind) {
    case reduce_kind::sum:
      return sum;
    case reduce_kind::product:
      return product;
    case reduce_kind::min:
      return min;
    case reduce_kind::max:
      return max;
    case reduce_kind::avg:
      return average;
    default:
      return -1;
  }
}

std::string explain(const char* library, int version, result code, const char* message, const char* more) {
  const bool says_more = more != nullptr && *more != '\0';
  return fmt::format("{} {}: {} ({}){}{}", library, version_text(version),
                     message == nullptr ? "error" : message, code, says_more ? ": " : "",
                     says_more ? more : "");
}

}  // namespace tutti::gpu::vendor_abi
