// SPDX-License-Identifier: Apache-2.0
// Memory of an emulated device, mapped twice: at addresses that fault if the host touches them, and for the
// device itself. Every access of the device is checked against the allocations.
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

  explicit arena(std::size_t bytes);  // throws errc::resources
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena();

  void* allocate(std::size_t bytes) noexcept;  // null: full
  bool free(void* memory) noexcept;            // false: no allocation begins there
  // The device's view of [memory, memory + bytes); null if that is not inside one allocation.
  std::byte* view(const void* memory, std::size_t bytes) const noexcept;
  bool contains(const void* memory) const noexcept;
  // The allocation that contains `memory`; `bytes` is 0 if there is none.
  block find(const void* memory) const noexcept;
  void* base() const noexcept { return face_; }
  std::size_t allocations() const noexcept;

  // Sharing with other processes: the descriptor of this memory, and mappings of theirs.
  int descriptor() const noexcept { return fd_; }
  void* adopt(int descriptor, std::size_t offset, std::size_t bytes) noexcept;  // null: cannot be mapped
  bool abandon(void* adopted) noexcept;                                         // false: not adopted
  std::pair<const void*, std::size_t> adopted_around(const void* memory) const noexcept;  // 0 bytes: none

 private:
  // Memory of another process, mapped twice, too.
  struct adoption {
    std::byte* inside = nullptr;
    std::size_t bytes = 0;
    std::size_t before = 0;  // from the start of its page
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
