// SPDX-License-Identifier: Apache-2.0
// A peer's shared memory as this rank sees it: read-only, mapped when its descriptor comes, kept as long as
// the link.
#pragma once

#include "base/unique_fd.hpp"
#include "transport/shm/descriptor_passing.hpp"
#include "transport/shm/segment.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::transport::shm {

class peer_regions {
 public:
  // Maps a region that the peer offers. One that cannot be mapped, or whose file could shrink under a reader,
  // is not remembered: messages in it come by way of the ring.
  void add(const region_label& label, base::unique_fd fd) noexcept;
  // `bytes` bytes from `offset` of `region`; null when that is not known, or not all of it lies inside.
  const std::byte* find(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) const noexcept;
  bool knows(std::uint64_t region) const noexcept { return entry_of(region) != nullptr; }

 private:
  struct entry {
    std::uint64_t region;
    mapping memory;
  };
  const entry* entry_of(std::uint64_t region) const noexcept;

  std::vector<entry> entries_;
};

}  // namespace tutti::transport::shm
