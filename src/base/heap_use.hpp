// SPDX-License-Identifier: Apache-2.0
// What the library's pools have taken from the heap, by thread and so by rank. They count when they grow, not
// when they serve from what they have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::base {

struct heap_use {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;  // total, including bytes returned
};

inline heap_use& heap_use_of_this_thread() noexcept {
  static constinit thread_local heap_use mine;
  return mine;
}

inline void count_heap_use(std::size_t bytes) noexcept {
  heap_use& mine = heap_use_of_this_thread();
  ++mine.blocks;
  mine.bytes += bytes;
}

}  // namespace tutti::base
