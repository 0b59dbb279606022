// SPDX-License-Identifier: Apache-2.0
// Memory that an emulated device can reach. Its own is mapped twice: at addresses that fault if the host
// touches them, and for the device itself. So is memory of other processes. Host memory is pinned. Every access
// of the device is checked against these blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace tutti::emulated {

class arena {
 public:
  enum class kind : std::uint8_t { none, own, adopted, pinned };
  struct block {
    kind is = kind::none;
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    std::byte* inside = nullptr;  // `base`, as the device accesses it
    std::uint64_t id = 0;         // of own memory: never reused
    bool owned = false;           // pinned memory that was allocated here
  };

  explicit arena(std::size_t bytes);  // throws errc::resources
  ~arena();

  void* allocate(std::size_t bytes) noexcept;  // null: full
  // Frees, unpins or unmaps a block. Returns false if no block of that kind begins there.
  bool release(const void* base, kind is) noexcept;
  // The device's view of [memory, memory + bytes); null if that is not inside one block.
  std::byte* view(const void* memory, std::size_t bytes) const noexcept;
  // Whether it is an address of the device's own memory, allocated or not.
  bool contains(const void* memory) const noexcept;
  // The block that contains `memory`.
  block find(const void* memory) const noexcept;
  void* base() const noexcept { return face_; }
  std::size_t allocations() const noexcept;

  // Host memory that the device may access.
  void* allocate_pinned(std::size_t bytes);   // throws errc::resources
  bool pin(void* memory, std::size_t bytes);  // false: it is pinned already

  // Sharing with other processes: the descriptor of this memory, and mappings of theirs.
  int descriptor() const noexcept { return fd_; }
  void* adopt(int descriptor, std::size_t offset, std::size_t bytes) noexcept;  // null: cannot be mapped

 private:
  std::size_t bytes_;
  int fd_ = -1;
  std::byte* face_ = nullptr;  // no access
  std::byte* inside_ = nullptr;
  mutable std::mutex mutex_;
  std::map<const std::byte*, block> blocks_;  // by base
  std::uint64_t next_id_ = 1;
};

}  // namespace tutti::emulated
