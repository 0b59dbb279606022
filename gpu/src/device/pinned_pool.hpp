// SPDX-License-Identifier: Apache-2.0
// Pinned host memory on loan, kept for later loans.
#pragma once

#include "device/driver.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <tutti/extend/support.hpp>
#include <tutti/shared_memory.hpp>
#include <utility>
#include <vector>

namespace tutti::gpu::impl {

class pinned_pool : public std::enable_shared_from_this<pinned_pool> {
 public:
  // `shared`: the ranks of this host read the memory in place, if the driver can pin such memory.
  pinned_pool(std::shared_ptr<driver> d, bool shared) : driver_(std::move(d)), shared_(shared) {}

  // Lends at least `bytes`, until the last reference goes.
  std::shared_ptr<allocation> take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max(bytes, shared_ ? smallest_shared : page));
    const auto spare = std::ranges::find(spare_, size, [](const auto& p) { return p->bytes; });
    std::unique_ptr<piece> taken;
    if (spare == spare_.end()) {
      taken = std::make_unique<piece>(*driver_, size, shared_);
    } else {
      taken = std::move(*spare);
      spare_.erase(spare);
    }
    return {taken.release(), [home = shared_from_this()](piece* p) { home->spare_.emplace_back(p); },
            tutti::extend::frame_allocator<std::byte>()};
  }

 private:
  static constexpr std::size_t page = 4096;
  // From this size on, a shared block has pages of its own.
  static constexpr std::size_t smallest_shared = std::size_t{128} << 10;

  struct piece : allocation {
    piece(driver& d, std::size_t size, bool shared) : of(d), bytes(size) {
      if (shared) {
        data = tutti::extend::allocate_shared_bytes(bytes, page);
        is_shared = of.pin(data, bytes);
        if (is_shared) return;
        tutti::extend::free_shared_bytes(data);
      }
      data = of.allocate(bytes, memory_kind::pinned);
    }
    piece(const piece&) = delete;
    piece& operator=(const piece&) = delete;
    ~piece() {
      if (is_shared) {
        of.unpin(data);
        tutti::extend::free_shared_bytes(data);
      } else {
        of.free(data, memory_kind::pinned);
      }
    }
    driver& of;
    const std::size_t bytes;
    bool is_shared = false;
  };

  const std::shared_ptr<driver> driver_;
  const bool shared_;
  std::vector<std::unique_ptr<piece>> spare_;
};

}  // namespace tutti::gpu::impl
