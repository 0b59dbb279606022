// SPDX-License-Identifier: Apache-2.0
// Message buffers on pages of their own, as in other benchmarks of this kind.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace perf {

// Source of buffers, for programs with memory of their own. Returns whole pages, or throws.
struct memory_source {
  std::byte* (*allocate)(std::size_t bytes);
  void (*release)(std::byte* memory, std::size_t bytes) noexcept;
};

inline constexpr std::size_t page_bytes = 4096;

inline constexpr memory_source ordinary_memory{
    [](std::size_t bytes) {
      void* memory = std::aligned_alloc(page_bytes, bytes);
      if (memory == nullptr) throw std::bad_alloc();
      return static_cast<std::byte*>(memory);
    },
    [](std::byte* memory, std::size_t) noexcept { std::free(memory); }};

class buffer {
 public:
  explicit buffer(std::size_t bytes, const memory_source& from = ordinary_memory)
      : memory_(from.allocate(whole_pages(bytes)), releaser{from, whole_pages(bytes)}), bytes_(bytes) {}

  std::span<std::byte> all() noexcept { return {memory_.get(), bytes_}; }
  std::span<std::byte> part(std::size_t offset, std::size_t bytes) noexcept {
    return {memory_.get() + offset, bytes};
  }

 private:
  static constexpr std::size_t whole_pages(std::size_t bytes) noexcept {
    return (bytes / page_bytes + 1) * page_bytes;
  }
  struct releaser {
    memory_source from;
    std::size_t bytes;
    void operator()(std::byte* memory) const noexcept { from.release(memory, bytes); }
  };
  std::unique_ptr<std::byte[], releaser> memory_;
  std::size_t bytes_;
};

}  // namespace perf
