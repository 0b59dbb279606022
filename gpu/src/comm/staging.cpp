// SPDX-License-Identifier: Apache-2.0
#include "comm/staging.hpp"

#include <algorithm>
#include <bit>
#include <tutti/shared_memory.hpp>

namespace tutti::gpu::detail {
namespace {

constexpr std::size_t page = 4096;
// From this size on, a shared block has pages of its own.
constexpr std::size_t smallest = std::size_t{128} << 10;

}  // namespace

staging::~staging() {
  for (const piece& p : spare_) free(p);
}

void staging::free(const piece& p) noexcept {
  if (p.kind == memory_kind::pinned) {
    driver_->free(p.data, memory_kind::pinned);
  } else {
    driver_->unpin(p.data);
    tutti::detail::free_shared_bytes(p.data);
  }
}

std::shared_ptr<allocation> staging::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, smallest));
  struct loan : allocation {
    std::shared_ptr<staging> home;
    piece what{};
    ~loan() {
      if (home) home->spare_.push_back(what);
    }
  };
  auto made = make_recycled<loan>();
  const auto spare =
      std::find_if(spare_.begin(), spare_.end(), [size](const piece& p) { return p.bytes == size; });
  if (spare != spare_.end()) {
    made->what = *spare;
    spare_.erase(spare);
  } else {
    void* const shared = tutti::detail::allocate_shared_bytes(size, page);
    if (driver_->pin(shared, size)) {
      made->what = {shared, size, memory_kind::host};
    } else {
      tutti::detail::free_shared_bytes(shared);
      made->what = {driver_->allocate(size, memory_kind::pinned), size, memory_kind::pinned};
    }
  }
  made->data = made->what.data;
  made->home = shared_from_this();
  return made;
}

}  // namespace tutti::gpu::detail
