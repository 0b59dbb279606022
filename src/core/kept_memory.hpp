// SPDX-License-Identifier: Apache-2.0
// Memory for handlers that are given to Asio repeatedly, kept by each thread. Asio keeps some itself, but
// only within one run() or poll(), and the loop polls from inside a handler.
#pragma once

#include "base/heap_use.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace tutti::core {

// A few kept blocks of one size.
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
    room_ = 0;  // blocks returned after the thread's end are not kept
  }
  static kept_memory& of_this_thread() noexcept {
    static thread_local kept_memory mine;
    return mine;
  }

  void* blocks_[most] = {};
  std::size_t count_ = 0;
  std::size_t room_ = most;
};

// An allocator of that memory.
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

// Memory for one handler, allocated in advance, so that giving that handler to Asio cannot fail. A second
// handler at the same time uses the heap.
class reserved_block {
 public:
  void* take(std::size_t bytes) {
    if (bytes <= sizeof room_ && !taken_.exchange(true, std::memory_order_acquire)) return room_;
    return ::operator new(bytes);
  }
  void give_back(void* block) noexcept {
    if (block == room_) {
      taken_.store(false, std::memory_order_release);
    } else {
      ::operator delete(block);
    }
  }

 private:
  alignas(std::max_align_t) std::byte room_[384];
  std::atomic<bool> taken_{false};
};

template <class T>
class reserved_allocator {
 public:
  using value_type = T;
  explicit reserved_allocator(std::shared_ptr<reserved_block> block) noexcept : block_(std::move(block)) {}
  template <class U>
  reserved_allocator(const reserved_allocator<U>& other) noexcept : block_(other.block_) {}
  T* allocate(std::size_t n) { return static_cast<T*>(block_->take(n * sizeof(T))); }
  void deallocate(T* p, std::size_t) noexcept { block_->give_back(p); }
  template <class U>
  bool operator==(const reserved_allocator<U>& other) const noexcept {
    return block_ == other.block_;
  }

 private:
  template <class U>
  friend class reserved_allocator;
  std::shared_ptr<reserved_block> block_;
};

// f() as a handler in that memory.
template <class F>
class reserved_handler {
 public:
  using allocator_type = reserved_allocator<std::byte>;
  reserved_handler(std::shared_ptr<reserved_block> block, F f) noexcept
      : block_(std::move(block)), f_(std::move(f)) {}
  allocator_type get_allocator() const noexcept { return allocator_type(block_); }
  void operator()() { f_(); }

 private:
  std::shared_ptr<reserved_block> block_;
  F f_;
};

}  // namespace tutti::core
