// SPDX-License-Identifier: Apache-2.0
// Temporary memory for collectives, kept between operations: no allocation in steady state.
#pragma once

#include "base/heap_use.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::comm {

class scratch_pool {
  struct block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };

 public:
  // A block on loan; its destructor returns it to the pool.
  class lease {
   public:
    lease(scratch_pool& pool, block b) noexcept : pool_(pool), block_(std::move(b)) {}
    lease(lease&&) noexcept = default;
    ~lease() {
      if (block_.memory) pool_.give_back(std::move(block_));
    }
    std::byte* data() const noexcept { return block_.memory.get(); }

   private:
    scratch_pool& pool_;
    block block_;
  };

  scratch_pool() { free_.reserve(kept); }
  // Lends at least `bytes` bytes, uninitialised; no block for 0 bytes.
  lease take(std::size_t bytes) {
    if (bytes == 0) return lease(*this, block{});
    std::size_t best = free_.size();
    for (std::size_t i = 0; i < free_.size(); ++i)
      if (free_[i].bytes >= bytes && (best == free_.size() || free_[i].bytes < free_[best].bytes)) best = i;
    if (best < free_.size()) {
      block found = std::move(free_[best]);
      free_[best] = std::move(free_.back());
      free_.pop_back();
      return lease(*this, std::move(found));
    }
    // Sizes repeat, so allocations soon stop.
    block made{std::unique_ptr<std::byte[]>(new std::byte[bytes]), bytes};
    base::count_heap_use(bytes);
    return lease(*this, std::move(made));
  }

 private:
  // Returns a block; if the pool is full, frees the smallest.
  void give_back(block b) noexcept {
    if (free_.size() < kept) {
      free_.push_back(std::move(b));
      return;
    }
    block* smallest = &free_.front();
    for (block& f : free_)
      if (f.bytes < smallest->bytes) smallest = &f;
    if (smallest->bytes < b.bytes) *smallest = std::move(b);
  }
  static constexpr std::size_t kept = 8;
  std::vector<block> free_;
};

}  // namespace tutti::comm
