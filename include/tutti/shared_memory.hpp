// SPDX-License-Identifier: Apache-2.0
// Memory that other ranks of this host can read in place. Long messages from it are copied once, straight
// into the receive buffer.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {
namespace detail {

// Allocates shared memory aligned to 64 bytes at least; blocks of 128 KiB and more are aligned to pages.
// Throws std::bad_alloc.
void* allocate_shared_bytes(std::size_t bytes, std::size_t alignment);
void free_shared_bytes(void* memory) noexcept;

template <class T>
T* allocate_shared_elements(std::size_t count) {
  static_assert(alignof(T) <= 4096, "tutti: shared memory is aligned to pages of 4096 bytes at most");
  if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
  return static_cast<T*>(allocate_shared_bytes(count * sizeof(T), alignof(T)));
}

}  // namespace detail

// A standard allocator of shared memory: `std::vector<float, tutti::shared_allocator<float>>`.
//
// A receiver on the same host reads a message of more than 4 KiB from the sender's own pages: one copy
// instead of two. Only the sender's buffer matters; receive buffers gain nothing. Other ranks can read this
// memory, and nothing else of this process.
//
// The memory needs no communicator and may outlive them all. Nothing of it is visible in the file system, and
// nothing remains after any end of the process. Pages take memory when they are first touched; blocks of 128
// KiB and more return theirs when they are freed. After fork(), parent and child share the memory, so a child
// should not write to it.
//
// Thread-safe and stateless: all instances are equal, and any of them may free memory on any thread. If the
// system grants no shared memory (no memfd, no descriptors left), the memory is ordinary and messages from it
// are copied as usual.
// Errors: throws std::bad_alloc.
// Cost: a lock and a search among free blocks. Meant for message buffers, not for small objects.
template <class T>
class shared_allocator {
 public:
  using value_type = T;
  using is_always_equal = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;

  shared_allocator() noexcept = default;
  template <class U>
  shared_allocator(const shared_allocator<U>&) noexcept {}

  [[nodiscard]] T* allocate(std::size_t count) { return detail::allocate_shared_elements<T>(count); }
  void deallocate(T* memory, std::size_t) noexcept { detail::free_shared_bytes(memory); }

  template <class U>
  friend bool operator==(const shared_allocator&, const shared_allocator<U>&) noexcept {
    return true;
  }
};

// A vector in shared memory; usable wherever a std::vector is taken as a buffer.
template <class T>
using shared_vector = std::vector<T, shared_allocator<T>>;

// An owned array of elements in shared memory: a contiguous range, and so itself a buffer for messages.
template <class T>
class shared_buffer {
  static_assert(std::is_trivially_copyable_v<T>, "tutti: messages are made of trivially copyable elements");

 public:
  // Makes an array of no elements.
  shared_buffer() noexcept = default;
  explicit shared_buffer(std::size_t count) : shared_buffer() {
    data_ = detail::allocate_shared_elements<T>(count);
    size_ = count;
    std::uninitialized_value_construct_n(data_, count);
  }
  shared_buffer(shared_buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  shared_buffer& operator=(shared_buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~shared_buffer() {
    if (data_ != nullptr) detail::free_shared_bytes(data_);
  }

  std::span<T> span() noexcept { return {data_, size_}; }
  std::span<const T> span() const noexcept { return {data_, size_}; }
  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// Allocates `count` elements of shared memory, value-initialised (numbers are 0). See shared_allocator for
// the uses of such memory.
// Errors: throws std::bad_alloc.
template <class T>
shared_buffer<T> allocate_shared(std::size_t count) {
  return shared_buffer<T>(count);
}

}  // namespace tutti
