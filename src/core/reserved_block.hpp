// SPDX-License-Identifier: Apache-2.0
// reserved_block: memory for one handler, allocated in advance, so that giving that handler to Asio cannot fail.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace tutti::core {

// A second handler at the same time uses the heap.
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

}  // namespace tutti::core
