// SPDX-License-Identifier: Apache-2.0
// Memory of messages: on pages of its own, as every benchmark of its kind has it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace perf {

class buffer {
 public:
  explicit buffer(std::size_t bytes) : bytes_(bytes) {
    const std::size_t whole_pages = (bytes / page_bytes + 1) * page_bytes;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(page_bytes, whole_pages)));
    if (!memory_) throw std::bad_alloc();
  }

  std::span<std::byte> all() noexcept { return {memory_.get(), bytes_}; }
  std::span<std::byte> part(std::size_t offset, std::size_t bytes) noexcept {
    return {memory_.get() + offset, bytes};
  }

 private:
  static constexpr std::size_t page_bytes = 4096;
  struct releaser {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<std::byte[], releaser> memory_;
  std::size_t bytes_;
};

}  // namespace perf
