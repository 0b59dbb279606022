// SPDX-License-Identifier: Apache-2.0
// The memory of an emulated device: addresses that fault when the host touches them, and a second view of the
// same pages for the device itself. Every access of the device is checked against what is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace tutti::emulated {

class arena {
 public:
  struct block {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    std::uint64_t id = 0;
  };

  explicit arena(std::size_t bytes);  // throws tutti::error, errc::resources
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena();

  void* allocate(std::size_t bytes) noexcept;  // null: it is full
  bool free(void* memory) noexcept;            // false: nothing begins there
  // The device's view of [memory, memory + bytes), where all of that lies in one allocation; else null.
  std::byte* view(const void* memory, std::size_t bytes) const noexcept;
  bool contains(const void* memory) const noexcept;
  // The allocation around `memory`; bytes is 0 where there is none.
  block find(const void* memory) const noexcept;
  void* base() const noexcept { return face_; }
  std::size_t allocations() const noexcept;

  // For other processes: the memory's descriptor, which they open, and pages of theirs among this one's
  // addresses.
  int descriptor() const noexcept { return fd_; }
  void* adopt(int descriptor, std::size_t offset, std::size_t bytes) noexcept;  // null: it cannot be mapped
  bool abandon(void* adopted) noexcept;                                         // false: nothing begins there
  std::pair<const void*, std::size_t> adopted_around(const void* memory) const noexcept;  // 0 bytes: none

 private:
  // Two views, as of the memory's own.
  struct adoption {
    std::byte* inside = nullptr;
    std::size_t bytes = 0;
    std::size_t before = 0;  // bytes of the page before its begin
  };
  const std::map<std::size_t, block>::const_iterator around(std::size_t offset) const noexcept;

  std::size_t bytes_;
  int fd_ = -1;
  std::byte* face_ = nullptr;  // no access
  std::byte* inside_ = nullptr;
  mutable std::mutex mutex_;
  std::map<std::size_t, block> blocks_;         // by offset
  std::map<std::uintptr_t, adoption> adopted_;  // by address
  std::uint64_t next_id_ = 1;
};

}  // namespace tutti::emulated
