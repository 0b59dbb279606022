// SPDX-License-Identifier: Apache-2.0
// The types of elements. Before the classes float16 and bfloat16: g++ warns (-Wshadow) of enumerators that follow them.
#pragma once

#include <cstdint>

namespace tutti {

// The type of elements, by which they are reduced, and compared between ranks; `opaque` has no arithmetic.
enum class element_type : std::uint8_t {
  opaque,
  boolean,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float32,
  float64,
  float16,
  bfloat16,
  complex_float32,
  complex_float64
};

}  // namespace tutti
