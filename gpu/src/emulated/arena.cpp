// SPDX-License-Identifier: Apache-2.0
#include "emulated/arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <tuple>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::emulated {
namespace {

constexpr std::size_t alignment = 256;
// Free bytes behind every allocation, so that an access past its end is found.
constexpr std::size_t gap = 256;
constexpr std::size_t page = 4096;

constexpr std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
std::uintptr_t address_of(const void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

// Maps a file without access, and for the device. Null if there is no address space.
std::pair<std::byte*, std::byte*> map_twice(int fd, std::size_t offset, std::size_t bytes) noexcept {
  const auto map = [=](int access) {
    return ::mmap(nullptr, bytes, access, MAP_SHARED | MAP_NORESERVE, fd, static_cast<off_t>(offset));
  };
  void *const face = map(PROT_NONE), *const inside = map(PROT_READ | PROT_WRITE);
  if (face != MAP_FAILED && inside != MAP_FAILED)
    return {static_cast<std::byte*>(face), static_cast<std::byte*>(inside)};
  if (face != MAP_FAILED) ::munmap(face, bytes);
  if (inside != MAP_FAILED) ::munmap(inside, bytes);
  return {};
}

}  // namespace

arena::arena(std::size_t bytes) : bytes_(rounded(bytes, page)) {
  fd_ = ::memfd_create("tutti-emulated-device", MFD_CLOEXEC);
  if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(bytes_)) != 0) {
    if (fd_ >= 0) ::close(fd_);
    throw error(errc::resources, "no memory for an emulated device");
  }
  std::tie(face_, inside_) = map_twice(fd_, 0, bytes_);
  if (face_ == nullptr) {
    ::close(fd_);
    throw error(errc::resources, "no address space for an emulated device");
  }
}

arena::~arena() {
  while (!blocks_.empty()) release(blocks_.begin()->first, blocks_.begin()->second.is);
  ::munmap(face_, bytes_);
  ::munmap(inside_, bytes_);
  ::close(fd_);
}

void* arena::allocate(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t needed = rounded(bytes + gap, alignment);
  std::size_t at = 0;
  for (const auto& [base, b] : blocks_) {
    if (b.is != kind::own) continue;
    const auto offset = static_cast<std::size_t>(base - face_);
    if (offset - at >= needed) break;
    at = offset + rounded(b.bytes + gap, alignment);
  }
  if (at + needed > bytes_) return nullptr;
  blocks_[face_ + at] = block{kind::own, face_ + at, bytes, inside_ + at, next_id_++, false};
  return face_ + at;
}

bool arena::release(const void* base, kind is) noexcept {
  block gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<const std::byte*>(base));
    if (found == blocks_.end() || found->second.is != is) return false;
    gone = found->second;
    blocks_.erase(found);
  }
  if (gone.owned) std::free(gone.base);
  if (is == kind::adopted) {
    const std::size_t before = address_of(gone.base) % page;  // it began there in its first page
    ::munmap(gone.base - before, before + gone.bytes);
    ::munmap(gone.inside - before, before + gone.bytes);
  }
  return true;
}

bool arena::contains(const void* memory) const noexcept {
  return address_of(memory) - address_of(face_) < bytes_;
}

arena::block arena::find(const void* memory) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto next = blocks_.upper_bound(static_cast<const std::byte*>(memory));
  const block before = next == blocks_.begin() ? block{} : std::prev(next)->second;
  return address_of(memory) - address_of(before.base) < before.bytes ? before : block{};
}

std::byte* arena::view(const void* memory, std::size_t bytes) const noexcept {
  if (bytes == 0 && contains(memory)) return inside_ + (static_cast<const std::byte*>(memory) - face_);
  const block b = find(memory);
  const std::size_t at = address_of(memory) - address_of(b.base);
  return b.is == kind::none || at + bytes > b.bytes ? nullptr : b.inside + at;
}

std::size_t arena::allocations() const noexcept {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(blocks_.begin(), blocks_.end(), [](const auto& b) { return b.second.is == kind::own; }));
}

void* arena::allocate_pinned(std::size_t bytes) {
  const std::size_t size = rounded(std::max<std::size_t>(bytes, 1), 64);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(64, size));
  if (memory == nullptr) throw error(errc::resources, "no host memory for an emulated device");
  const std::lock_guard lock(mutex_);
  blocks_[memory] = block{kind::pinned, memory, size, memory, 0, true};
  return memory;
}
bool arena::pin(void* memory, std::size_t bytes) {
  auto* const base = static_cast<std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  return blocks_.emplace(base, block{kind::pinned, base, bytes, base, 0, false}).second;
}

void* arena::adopt(int descriptor, std::size_t offset, std::size_t bytes) noexcept {
  const std::size_t before = offset % page;
  const auto [face, inside] = map_twice(descriptor, offset - before, before + bytes);
  if (face == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  blocks_[face + before] = block{kind::adopted, face + before, bytes, inside + before, 0, false};
  return face + before;
}

}  // namespace tutti::emulated
