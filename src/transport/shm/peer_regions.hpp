// SPDX-License-Identifier: Apache-2.0
// peer_regions: a peer's shared memory as this rank sees it: read-only, mapped when its descriptor comes,
// kept as long as the link.
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
  // Maps a region that the peer offers. A region that cannot be mapped, or whose file could shrink under a
  // reader, is ignored: its messages come through the ring.
  void add(const region_label& label, base::unique_fd fd) noexcept;
  // Returns `bytes` bytes from `offset` of `region`; null if it is unknown or does not contain all of them.
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
