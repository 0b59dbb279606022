// SPDX-License-Identifier: Apache-2.0
// Pinned host memory on loan, kept for later loans.
#pragma once

#include "device/driver.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::gpu::detail {

class pinned_pool : public std::enable_shared_from_this<pinned_pool> {
 public:
  // `shared`: the ranks of this host read the memory in place, if the driver can pin such memory.
  pinned_pool(std::shared_ptr<driver> d, bool shared) : driver_(std::move(d)), shared_(shared) {}
  pinned_pool(const pinned_pool&) = delete;
  pinned_pool& operator=(const pinned_pool&) = delete;
  ~pinned_pool();

  // Lends at least `bytes`, until the last reference goes.
  std::shared_ptr<allocation> take(std::size_t bytes);

 private:
  struct piece {
    void* data;
    std::size_t bytes;
    memory_kind kind;  // host: shared memory, pinned here
  };
  piece make(std::size_t bytes);
  const std::shared_ptr<driver> driver_;
  const bool shared_;
  std::vector<piece> spare_;
};

}  // namespace tutti::gpu::detail
