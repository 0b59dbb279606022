// SPDX-License-Identifier: Apache-2.0
// Host memory for chunks between a device and the CPU communicator. It is pinned for the device and shared
// with the ranks of this host, which read it in place. It is kept for later operations.
#pragma once

#include "device/attachment.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace tutti::gpu::detail {

class staging : public std::enable_shared_from_this<staging> {
 public:
  explicit staging(std::shared_ptr<driver> d) : driver_(std::move(d)) {}
  staging(const staging&) = delete;
  staging& operator=(const staging&) = delete;
  ~staging();

  // Lends at least `bytes`, until the last reference goes.
  std::shared_ptr<allocation> take(std::size_t bytes);

 private:
  struct piece {
    void* data;
    std::size_t bytes;
    memory_kind kind;  // host: shared memory, pinned here
  };
  void free(const piece& p) noexcept;
  std::shared_ptr<driver> driver_;
  std::vector<piece> spare_;
};

}  // namespace tutti::gpu::detail
