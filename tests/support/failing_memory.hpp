// SPDX-License-Identifier: Apache-2.0
// An operator new that fails on demand. Include it once in a program; it replaces the program's operator new.
#pragma once

#include "support/operator_new.hpp"

#include <atomic>
#include <limits>

namespace tutti::test {

// Counts the allocations of the whole process once failures are enabled.
struct failing_memory {
  static constexpr long none = std::numeric_limits<long>::max();
  static inline std::atomic<long> count{0};
  static inline std::atomic<long> first{none};  // number of the first that fails
  static inline std::atomic<long> row{0};       // how many fail in succession
  static inline void (*on_failure)() noexcept = nullptr;

  static void fail_after(long successes, long in_a_row) noexcept {
    count = 0;
    row = in_a_row;
    first = successes;
  }
  static void never_fail() noexcept { first = none; }

  static bool fails() noexcept {
    // Each allocation has its own number, so that concurrent allocations do not fail together.
    const long number = count.fetch_add(1, std::memory_order_relaxed);
    const long from = first.load(std::memory_order_relaxed);
    if (number < from || number - from >= row.load(std::memory_order_relaxed)) return false;
    if (on_failure != nullptr) on_failure();
    return true;
  }
};

void* memory_for(std::size_t bytes, std::size_t alignment) {
  if (failing_memory::fails()) throw std::bad_alloc();
  return plain_memory(bytes, alignment);
}
bool refuses_aligned_alloc() noexcept { return failing_memory::fails(); }

}  // namespace tutti::test
