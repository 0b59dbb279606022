// SPDX-License-Identifier: Apache-2.0
// Memory for handlers that are given to Asio again and again, kept by each thread. Asio keeps some itself,
// but only within one run() or poll(), and the loop polls from inside a handler.
#pragma once

#include "base/heap_use.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace tutti::core {

// Of blocks of one size: a few are kept.
class kept_memory {
 public:
  static constexpr std::size_t block_bytes = 256;

  static void* take(std::size_t bytes) {
    kept_memory& mine = of_this_thread();
    if (bytes <= block_bytes && mine.count_ > 0) return mine.blocks_[--mine.count_];
    bytes = std::max(bytes, block_bytes);
    void* const block = ::operator new(bytes);
    base::count_heap_use(bytes);
    return block;
  }
  static void give_back(void* block, std::size_t bytes) noexcept {
    kept_memory& mine = of_this_thread();
    if (bytes <= block_bytes && mine.count_ < mine.room_) {
      mine.blocks_[mine.count_++] = block;
    } else {
      ::operator delete(block);
    }
  }

 private:
  static constexpr std::size_t most = 8;
  kept_memory() noexcept = default;
  ~kept_memory() {
    while (count_ > 0) ::operator delete(blocks_[--count_]);
    room_ = 0;  // what comes back after the thread's end is not kept
  }
  static kept_memory& of_this_thread() noexcept {
    static thread_local kept_memory mine;
    return mine;
  }

  void* blocks_[most] = {};
  std::size_t count_ = 0;
  std::size_t room_ = most;
};

// The same as an allocator.
template <class T>
struct kept_allocator {
  using value_type = T;
  kept_allocator() noexcept = default;
  template <class U>
  kept_allocator(const kept_allocator<U>&) noexcept {}
  T* allocate(std::size_t n) { return static_cast<T*>(kept_memory::take(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { kept_memory::give_back(p, n * sizeof(T)); }
  friend bool operator==(const kept_allocator&, const kept_allocator&) noexcept { return true; }
};

}  // namespace tutti::core
