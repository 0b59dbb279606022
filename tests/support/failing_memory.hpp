// SPDX-License-Identifier: Apache-2.0
// An operator new that fails when it is told to. To be included once in a program, whose operator new it
// replaces.
#pragma once

#include "support/operator_new.hpp"

#include <atomic>

namespace tutti::test {

// Allocations of the whole process, from the time that they are to fail on.
struct failing_memory {
  static inline std::atomic<long> left{-1};  // that succeed before one fails; negative: none fails
  static inline std::atomic<long> row{0};    // how many fail then, one after the other
  static inline std::atomic<long> count{0};
  static inline void (*on_failure)() noexcept = nullptr;

  static void fail_after(long successes, long in_a_row) noexcept {
    count = 0;
    row = in_a_row;
    left = successes;
  }
  static void never_fail() noexcept { left = -1; }

  static bool fails() noexcept {
    count.fetch_add(1, std::memory_order_relaxed);
    if (left.load(std::memory_order_relaxed) < 0) return false;
    if (left.fetch_sub(1, std::memory_order_relaxed) > 0) return false;
    // Further ones, until the row is over.
    if (row.fetch_sub(1, std::memory_order_relaxed) > 1) left.store(0, std::memory_order_relaxed);
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
