// SPDX-License-Identifier: Apache-2.0
// Replaces operator new in all its forms. Include it once in a program, which defines the functions below.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define TUTTI_TEST_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TUTTI_TEST_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TUTTI_TEST_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TUTTI_TEST_THREAD_SANITIZER 1
#endif
#endif

namespace tutti::test {

// Defined by the program: returns the memory for operator new, or throws std::bad_alloc.
void* memory_for(std::size_t bytes, std::size_t alignment);
// Defined by the program: called for each aligned_alloc, which Asio uses instead of operator new. True: it
// fails.
bool refuses_aligned_alloc() noexcept;

inline void* plain_memory(std::size_t bytes, std::size_t alignment) {
  void* p = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    p = std::malloc(bytes > 0 ? bytes : 1);
  } else if (::posix_memalign(&p, alignment, bytes > 0 ? bytes : 1) != 0) {
    p = nullptr;
  }
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace tutti::test

void* operator new(std::size_t bytes) { return tutti::test::memory_for(bytes, 1); }
void* operator new[](std::size_t bytes) { return tutti::test::memory_for(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) {
  return tutti::test::memory_for(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a) {
  return tutti::test::memory_for(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

#if defined(__GLIBC__) && !defined(TUTTI_TEST_ADDRESS_SANITIZER) && !defined(TUTTI_TEST_THREAD_SANITIZER)
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return tutti::test::refuses_aligned_alloc() ? nullptr : __libc_memalign(alignment, bytes);
}
#endif
