// SPDX-License-Identifier: Apache-2.0
// Pinned host memory on loan, kept for later loans.
#pragma once

#include "device/driver.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <tutti/detail/flow.hpp>
#include <tutti/shared_memory.hpp>
#include <utility>
#include <vector>

namespace tutti::gpu::detail {

class pinned_pool : public std::enable_shared_from_this<pinned_pool> {
 public:
  // `shared`: the ranks of this host read the memory in place, if the driver can pin such memory.
  pinned_pool(std::shared_ptr<driver> d, bool shared) : driver_(std::move(d)), shared_(shared) {}
  pinned_pool(const pinned_pool&) = delete;
  pinned_pool& operator=(const pinned_pool&) = delete;
  ~pinned_pool() {
    for (const piece& p : spare_) {
      if (p.kind == memory_kind::pinned) {
        driver_->free(p.data, memory_kind::pinned);
      } else {
        driver_->unpin(p.data);
        tutti::detail::free_shared_bytes(p.data);
      }
    }
  }

  // Lends at least `bytes`, until the last reference goes.
  std::shared_ptr<allocation> take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max(bytes, shared_ ? smallest_shared : page));
    struct loan : allocation {
      std::shared_ptr<pinned_pool> home;
      piece what{};
      ~loan() {
        if (home) home->spare_.push_back(what);
      }
    };
    auto made = tutti::detail::make_recycled<loan>();
    const auto spare =
        std::find_if(spare_.begin(), spare_.end(), [size](const piece& p) { return p.bytes == size; });
    if (spare != spare_.end()) {
      made->what = *spare;
      spare_.erase(spare);
    } else {
      made->what = make(size);
    }
    made->data = made->what.data;
    made->home = shared_from_this();
    return made;
  }

 private:
  struct piece {
    void* data;
    std::size_t bytes;
    memory_kind kind;  // host: shared memory, pinned here
  };
  static constexpr std::size_t page = 4096;
  // From this size on, a shared block has pages of its own.
  static constexpr std::size_t smallest_shared = std::size_t{128} << 10;

  piece make(std::size_t bytes) {
    if (shared_) {
      void* const memory = tutti::detail::allocate_shared_bytes(bytes, page);
      if (driver_->pin(memory, bytes)) return {memory, bytes, memory_kind::host};
      tutti::detail::free_shared_bytes(memory);
    }
    return {driver_->allocate(bytes, memory_kind::pinned), bytes, memory_kind::pinned};
  }

  const std::shared_ptr<driver> driver_;
  const bool shared_;
  std::vector<piece> spare_;
};

}  // namespace tutti::gpu::detail
