// SPDX-License-Identifier: Apache-2.0
// The registry of shared memory: which bytes of this process lie in files (memfd) that another process can
// map. <tutti/shared_memory.hpp> has the allocator that makes them.
#pragma once

#include "base/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tutti::base {

// Where some bytes lie. A region is never unmapped, shrunk or closed while the process lives, and its number
// is never reused. So a peer that maps it can keep it.
struct shared_place {
  std::uint64_t region = 0;  // from 1
  std::uint64_t region_bytes = 0;
  std::uint64_t offset = 0;
  int fd = -1;  // of the region
};

// The place of [data, data + bytes) if all of it lies in one region. May be called from any thread; takes no
// lock. In a program without shared memory it is one load.
std::optional<shared_place> find_shared(const void* data, std::size_t bytes) noexcept;

// Makes a sparse memfd, sealed: nobody can resize it, so no reader of a mapping can fault. Empty: errno says why.
unique_fd make_memory_file(const char* name, std::size_t bytes) noexcept;

// Maps pages that will be used soon, all by one system call: a fault for each would take longer. Both start and
// size are whole pages. Does nothing on a kernel before Linux 5.14.
void populate(const void* data, std::size_t bytes, bool to_write) noexcept;

struct shared_memory_usage {
  std::size_t regions = 0;          // regions that can be shared
  std::size_t reserved_bytes = 0;   // address space
  std::size_t allocated_bytes = 0;  // in blocks, as rounded
  std::size_t blocks = 0;
};
shared_memory_usage shared_memory_in_use();

}  // namespace tutti::base
