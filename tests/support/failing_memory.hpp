// SPDX-License-Identifier: Apache-2.0
// An operator new that fails when it is told to. To be included once in a program, whose operator new it
// replaces.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

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
  static void* take(std::size_t bytes, std::size_t alignment) {
    if (fails()) throw std::bad_alloc();
    void* p = nullptr;
    if (alignment <= alignof(std::max_align_t)) {
      p = std::malloc(bytes > 0 ? bytes : 1);
    } else if (::posix_memalign(&p, alignment, bytes > 0 ? bytes : 1) != 0) {
      p = nullptr;
    }
    if (p == nullptr) throw std::bad_alloc();
    return p;
  }
};

}  // namespace tutti::test

void* operator new(std::size_t bytes) { return tutti::test::failing_memory::take(bytes, 1); }
void* operator new[](std::size_t bytes) { return tutti::test::failing_memory::take(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) {
  return tutti::test::failing_memory::take(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a) {
  return tutti::test::failing_memory::take(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Asio does not ask operator new for the memory of its operations.
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return tutti::test::failing_memory::fails() ? nullptr : __libc_memalign(alignment, bytes);
}
#endif
