// SPDX-License-Identifier: Apache-2.0
// Temporary memory for collectives, kept between operations: no allocation in steady state. Aligned for elements of a
// user's reduction.
#pragma once

#include "base/heap_use.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <tutti/reduce_op.hpp>
#include <utility>

namespace tutti::comm {

class scratch_pool {
  static constexpr std::align_val_t alignment{detail::element_alignment};
  struct freed {
    void operator()(void* b) const noexcept { ::operator delete(b, alignment); }
  };
  using blocks = std::multimap<std::size_t, std::unique_ptr<std::byte, freed>>;  // by size

 public:
  // A block on loan; its destructor returns it to the pool.
  class lease {
   public:
    lease(scratch_pool& pool, blocks::node_type b) noexcept : pool_(pool), block_(std::move(b)) {}
    lease(lease&&) noexcept = default;
    ~lease() {
      if (block_) pool_.give_back(std::move(block_));
    }
    std::byte* data() const noexcept { return block_ ? block_.mapped().get() : nullptr; }

   private:
    scratch_pool& pool_;
    blocks::node_type block_;
  };

  // Lends at least `bytes` bytes, uninitialised; no block for 0 bytes.
  lease take(std::size_t bytes) {
    if (bytes == 0) return lease(*this, {});
    if (const auto best = free_.lower_bound(bytes); best != free_.end())
      return lease(*this, free_.extract(best));
    // Sizes repeat, so allocations soon stop.
    blocks::mapped_type block(static_cast<std::byte*>(::operator new(bytes, alignment)));
    const auto made = free_.emplace(bytes, std::move(block));
    base::count_heap_use(bytes);
    return lease(*this, free_.extract(made));
  }

 private:
  // Returns a block; if the pool is full, frees the smallest.
  void give_back(blocks::node_type b) noexcept {
    free_.insert(std::move(b));
    if (free_.size() > kept) free_.erase(free_.begin());
  }
  static constexpr std::size_t kept = 8;
  blocks free_;
};

}  // namespace tutti::comm
