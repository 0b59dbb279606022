// SPDX-License-Identifier: Apache-2.0
// An operator new that fails when it is told to. To be included once in a program, whose operator new it
// replaces.
#pragma once

#include "support/operator_new.hpp"

#include <atomic>
#include <limits>

namespace tutti::test {

// Allocations of the whole process, from the time that they are to fail on.
struct failing_memory {
  static constexpr long none = std::numeric_limits<long>::max();
  static inline std::atomic<long> count{0};
  static inline std::atomic<long> first{none};  // the first that fails, by count
  static inline std::atomic<long> row{0};       // how many fail from there
  static inline void (*on_failure)() noexcept = nullptr;

  static void fail_after(long successes, long in_a_row) noexcept {
    count = 0;
    row = in_a_row;
    first = successes;
  }
  static void never_fail() noexcept { first = none; }

  static bool fails() noexcept {
    // Each allocation has a number of its own: threads that allocate at once do not fail together.
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
