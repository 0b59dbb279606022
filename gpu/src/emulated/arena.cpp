// SPDX-License-Identifier: Apache-2.0
#include "emulated/arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <tutti/error.hpp>

namespace tutti::emulated {
namespace {

constexpr std::size_t alignment = 256;
// Free bytes behind every allocation, so that an access past its end is found.
constexpr std::size_t gap = 256;

}  // namespace

arena::arena(std::size_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
  fd_ = ::memfd_create("tutti-emulated-device", MFD_CLOEXEC);
  if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(bytes_)) != 0) {
    if (fd_ >= 0) ::close(fd_);
    throw error(errc::resources, "no memory for an emulated device");
  }
  void* const face = ::mmap(nullptr, bytes_, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  void* const inside = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (face == MAP_FAILED || inside == MAP_FAILED) {
    if (face != MAP_FAILED) ::munmap(face, bytes_);
    if (inside != MAP_FAILED) ::munmap(inside, bytes_);
    ::close(fd_);
    throw error(errc::resources, "no address space for an emulated device");
  }
  face_ = static_cast<std::byte*>(face);
  inside_ = static_cast<std::byte*>(inside);
}

arena::~arena() {
  while (!adopted_.empty()) abandon(reinterpret_cast<void*>(adopted_.begin()->first));
  ::munmap(face_, bytes_);
  ::munmap(inside_, bytes_);
  ::close(fd_);
}

void* arena::allocate(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t needed = (bytes + gap + alignment - 1) / alignment * alignment;
  std::size_t at = 0;
  for (const auto& [offset, b] : blocks_) {
    if (offset - at >= needed) break;
    at = offset + (b.bytes + gap + alignment - 1) / alignment * alignment;
  }
  if (at + needed > bytes_) return nullptr;
  blocks_[at] = block{at, bytes, next_id_++};
  return face_ + at;
}

bool arena::free(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  if (!contains(memory)) return false;
  return blocks_.erase(static_cast<std::size_t>(static_cast<std::byte*>(memory) - face_)) == 1;
}

bool arena::contains(const void* memory) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(memory),
             begin = reinterpret_cast<std::uintptr_t>(face_);
  return address >= begin && address < begin + bytes_;
}

const std::map<std::size_t, arena::block>::const_iterator arena::around(std::size_t offset) const noexcept {
  auto next = blocks_.upper_bound(offset);
  if (next == blocks_.begin()) return blocks_.end();
  --next;
  return offset < next->second.offset + next->second.bytes ? next : blocks_.end();
}

arena::block arena::find(const void* memory) const noexcept {
  if (!contains(memory)) return {};
  const std::lock_guard lock(mutex_);
  const auto found = around(static_cast<std::size_t>(static_cast<const std::byte*>(memory) - face_));
  return found == blocks_.end() ? block{} : found->second;
}

std::byte* arena::view(const void* memory, std::size_t bytes) const noexcept {
  if (!contains(memory)) {
    const auto [start, size] = adopted_around(memory);
    const auto at = static_cast<std::size_t>(static_cast<const std::byte*>(memory) -
                                             static_cast<const std::byte*>(start));
    if (size == 0 || at + bytes > size) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = adopted_.find(reinterpret_cast<std::uintptr_t>(start));
    return found == adopted_.end() ? nullptr : found->second.inside + at;
  }
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(memory) - face_);
  if (bytes == 0) return inside_ + offset;
  const std::lock_guard lock(mutex_);
  const auto found = around(offset);
  if (found == blocks_.end() || offset + bytes > found->second.offset + found->second.bytes) return nullptr;
  return inside_ + offset;
}

void* arena::adopt(int descriptor, std::size_t offset, std::size_t bytes) noexcept {
  const std::size_t before = offset % 4096, length = before + bytes;
  const auto at = static_cast<off_t>(offset - before);
  void* const face = ::mmap(nullptr, length, PROT_NONE, MAP_SHARED | MAP_NORESERVE, descriptor, at);
  void* const inside =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, at);
  if (face == MAP_FAILED || inside == MAP_FAILED) {
    if (face != MAP_FAILED) ::munmap(face, length);
    if (inside != MAP_FAILED) ::munmap(inside, length);
    return nullptr;
  }
  std::byte* const start = static_cast<std::byte*>(face) + before;
  const std::lock_guard lock(mutex_);
  adopted_[reinterpret_cast<std::uintptr_t>(start)] =
      adoption{static_cast<std::byte*>(inside) + before, bytes, before};
  return start;
}

bool arena::abandon(void* adopted) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = adopted_.find(reinterpret_cast<std::uintptr_t>(adopted));
  if (found == adopted_.end()) return false;
  const adoption gone = found->second;
  adopted_.erase(found);
  ::munmap(static_cast<std::byte*>(adopted) - gone.before, gone.before + gone.bytes);
  ::munmap(gone.inside - gone.before, gone.before + gone.bytes);
  return true;
}

std::pair<const void*, std::size_t> arena::adopted_around(const void* memory) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::lock_guard lock(mutex_);
  auto next = adopted_.upper_bound(address);
  if (next == adopted_.begin()) return {nullptr, 0};
  --next;
  if (address >= next->first + next->second.bytes) return {nullptr, 0};
  return {reinterpret_cast<const void*>(next->first), next->second.bytes};
}

std::size_t arena::allocations() const noexcept {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

}  // namespace tutti::emulated
