// SPDX-License-Identifier: Apache-2.0
// Memory that other ranks of this host read in place: long messages from it are copied once.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>
#include <vector>

namespace tutti {
namespace detail {

// Aligned to 64 bytes at least; blocks of 128 KiB and more to pages. Throws std::bad_alloc.
void* allocate_shared_bytes(std::size_t bytes, std::size_t alignment);
void free_shared_bytes(void* memory) noexcept;

}  // namespace detail

// A standard allocator of shared memory: `std::vector<float, tutti::shared_allocator<float>>`.
//
// A receiver on the same host reads a message of more than 4 KiB from the sender's own pages: one copy instead
// of two. Receive buffers gain nothing. A window of it (tutti/window.hpp) is read and written in place. Other ranks can
// map this memory, and nothing else of this process.
//
// The memory needs no communicator and may outlive them all. It is not visible in the file system, and nothing
// remains after any end of the process. Pages take memory when they are first touched; blocks of 128 KiB and
// more return theirs when they are freed. After fork() the child should not write to it: it shares the memory.
//
// Thread-safe and stateless: all instances are equal. If the system grants no shared memory (no memfd, no
// descriptors left), the memory is ordinary and messages from it are copied as usual.
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

  [[nodiscard]] T* allocate(std::size_t count) {
    static_assert(alignof(T) <= 4096, "tutti: shared memory is aligned to pages of 4096 bytes at most");
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(detail::allocate_shared_bytes(count * sizeof(T), alignof(T)));
  }
  void deallocate(T* memory, std::size_t) noexcept { detail::free_shared_bytes(memory); }

  template <class U>
  friend bool operator==(const shared_allocator&, const shared_allocator<U>&) noexcept {
    return true;
  }
};

// A vector in shared memory; usable wherever a std::vector is taken as a buffer.
template <class T>
using shared_vector = std::vector<T, shared_allocator<T>>;

// Allocates `count` elements of shared memory, value-initialised (numbers are 0).
// Errors: throws std::bad_alloc.
template <class T>
shared_vector<T> allocate_shared(std::size_t count) {
  static_assert(!std::is_same_v<T, bool>, "a std::vector<bool> is no buffer: use std::uint8_t");
  return shared_vector<T>(count);
}

}  // namespace tutti
