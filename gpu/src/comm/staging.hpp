// SPDX-License-Identifier: Apache-2.0
// Host memory that chunks pass through on their way between a device and the CPU communicator: pinned for the
// device, shared with the ranks of this host, which read it in place. Kept for the next operation.
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

  // `bytes` at least; comes back when the last reference goes.
  std::shared_ptr<allocation> take(std::size_t bytes);

 private:
  struct piece {
    void* data;
    std::size_t bytes;
    memory_kind kind;  // host: shared memory that we have pinned
  };
  void free(const piece& p) noexcept;
  std::shared_ptr<driver> driver_;
  std::vector<piece> spare_;
};

}  // namespace tutti::gpu::detail
