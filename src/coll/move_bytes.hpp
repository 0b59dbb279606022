// SPDX-License-Identifier: Apache-2.0
// Copies bytes within this rank's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::coll {

inline bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(a), second = reinterpret_cast<std::uintptr_t>(b);
  return first < second ? second - first < a_bytes : first - second < b_bytes;
}

inline void move_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (to == from || bytes == 0) return;
  if (overlap(to, bytes, from, bytes)) {
    std::memmove(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace tutti::coll
