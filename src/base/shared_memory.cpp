// SPDX-License-Identifier: Apache-2.0
// An arena of sparse memfds. Blocks are described outside the shared pages, which contain only users' bytes.
// Adjacent free blocks are joined, and free blocks are found by the power of two of their size.
#include "base/shared_memory.hpp"

#include "base/intrusive_list.hpp"
#include "base/log.hpp"
#include "base/signals_blocked.hpp"
#include "base/text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <tutti/shared_memory.hpp>

namespace tutti::base {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t block_alignment = 64;
constexpr std::size_t large_block_bytes = 128 * 1024;
constexpr std::size_t smallest_region_bytes = 64 * 1024 * 1024;

constexpr std::size_t round_up(std::size_t value, std::size_t to) noexcept {
  return (value + to - 1) & ~(to - 1);
}

struct region {
  std::uint64_t id = 0;  // 0: ordinary memory, because the system gave no memfd
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  unique_fd fd;
  const region* next = nullptr;  // older
};

struct free_tag;

// Free if it is linked, in the list of its size.
struct block : list_hook<free_tag> {
  block(const region& r, std::byte* first, std::size_t n) noexcept : home(r), at(first), bytes(n) {}
  const region& home;
  std::byte* const at;
  std::size_t bytes;
};

// Regions that can be shared, newest first. None is ever removed, so readers need no lock.
std::atomic<const region*> newest_region{nullptr};

class arena {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment);
  void free(void* memory) noexcept;
  shared_memory_usage usage() noexcept {
    const std::lock_guard guard(mutex_);
    return usage_;
  }

 private:
  static std::size_t bin_of(std::size_t bytes) noexcept {
    return static_cast<std::size_t>(std::bit_width(bytes)) - 1;
  }
  // Null: they do not fit there.
  static std::byte* place_in(const block& b, std::size_t bytes, std::size_t alignment) noexcept {
    void* first = b.at;
    std::size_t room = b.bytes;
    return static_cast<std::byte*>(std::align(alignment, bytes, first, room));
  }
  block* find_free(std::size_t bytes, std::size_t alignment) noexcept;
  block& add_region(std::size_t bytes);
  void put_free(block& b) noexcept {
    b.unlink();
    bins_[bin_of(b.bytes)].push_front(b);
  }
  block& add_free(const region& home, std::byte* at, std::size_t bytes) {
    block& b = blocks_.try_emplace(at, home, at, bytes).first->second;
    put_free(b);
    return b;
  }
  block& cut(block& b, std::size_t bytes);
  void join_with_next(std::map<std::byte*, block>::iterator b) noexcept;

  std::mutex mutex_;
  std::map<std::byte*, block> blocks_;  // by address: neighbours in a region are neighbours here
  std::array<intrusive_list<block, free_tag>, 64> bins_;
  std::uint64_t last_region_ = 0;
  shared_memory_usage usage_;
};

// Never destroyed: users' objects may be freed after every destructor of the library has run.
arena& the_arena() {
  static arena& a = *new arena;
  return a;
}

void give_back_pages(const region& home, std::byte* at, std::size_t bytes) noexcept {
  if (home.fd) {
    // From the file, not only from this mapping: peers' mappings release the pages too.
    ::fallocate(home.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at - home.base,
                static_cast<off_t>(bytes));
  } else {
    ::madvise(at, bytes, MADV_DONTNEED);
  }
}

block* arena::find_free(std::size_t bytes, std::size_t alignment) noexcept {
  for (std::size_t bin = bin_of(bytes); bin < bins_.size(); ++bin)
    for (block* b = bins_[bin].front(); b != nullptr; b = bins_[bin].after(*b))
      if (place_in(*b, bytes, alignment) != nullptr) return b;
  return nullptr;
}

block& arena::add_region(std::size_t bytes) {
  // Address space is free, and few regions are searched quickly: each is half as large as all before it.
  const std::size_t wanted =
      round_up(std::max({bytes, smallest_region_bytes, usage_.reserved_bytes / 2}), page_bytes);
  auto r = std::make_unique<region>();
  for (const std::size_t size : {wanted, round_up(bytes, page_bytes)}) {
    r->fd = make_memory_file("arena-of-tutti", size);
    const int why = errno;
    void* address =
        r->fd ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd.get(), 0) : MAP_FAILED;
    if (address == MAP_FAILED) {
      r->fd.reset();
      log(log_level::info,
          fmt::format("memory meant to be shared is ordinary memory: {}", write_error_text(why)));
      address =
          ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (address == MAP_FAILED) continue;  // `ulimit -v`: then no more than requested
    r->base = static_cast<std::byte*>(address);
    r->bytes = size;
    break;
  }
  if (r->base == nullptr) throw std::bad_alloc();
  block& whole = add_free(*r, r->base, r->bytes);
  usage_.reserved_bytes += r->bytes;
  if (r->fd) {
    r->id = ++last_region_;
    r->next = newest_region.load(std::memory_order_relaxed);
    ++usage_.regions;
    newest_region.store(r.get(), std::memory_order_release);
  }
  r.release();  // for ever: a peer may have mapped it, and its blocks refer to it
  return whole;
}

// Cuts a free block in two free ones, and returns the second.
block& arena::cut(block& b, std::size_t bytes) {
  block& rest = add_free(b.home, b.at + bytes, b.bytes - bytes);
  b.bytes = bytes;
  put_free(b);
  return rest;
}

// Joins the block behind `b` to it, if both are free.
void arena::join_with_next(std::map<std::byte*, block>::iterator b) noexcept {
  const auto next = std::next(b);
  if (next == blocks_.end() || &next->second.home != &b->second.home || !next->second.linked() ||
      !b->second.linked())
    return;
  next->second.unlink();
  b->second.bytes += next->second.bytes;
  put_free(b->second);
  blocks_.erase(next);
}

void* arena::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > (std::size_t{1} << 60)) throw std::bad_alloc();
  const std::size_t padded = round_up(std::max<std::size_t>(bytes, 1), block_alignment);
  const bool large = padded >= large_block_bytes;
  const std::size_t size = large ? round_up(padded, page_bytes) : padded;
  alignment = std::max(alignment, large ? page_bytes : block_alignment);

  const std::lock_guard guard(mutex_);
  block* b = find_free(size, alignment);
  if (b == nullptr) b = &add_region(size);
  std::byte* const at = place_in(*b, size, alignment);
  if (at == nullptr) throw std::bad_alloc();
  if (at != b->at) b = &cut(*b, static_cast<std::size_t>(at - b->at));
  if (b->bytes > size) cut(*b, size);
  b->unlink();
  usage_.allocated_bytes += size;
  ++usage_.blocks;
  return b->at;
}

void arena::free(void* memory) noexcept {
  std::unique_lock guard(mutex_);
  const auto found = blocks_.find(static_cast<std::byte*>(memory));
  if (found == blocks_.end() || found->second.linked()) {
    log_error(
        fmt::format("{} was freed as shared memory, but is no block of it, or was freed before", memory));
    std::abort();
  }
  block& b = found->second;
  if (b.bytes >= large_block_bytes) {
    // Still marked as in use, so that no other thread gets it while its pages are released.
    guard.unlock();
    give_back_pages(b.home, b.at, b.bytes);
    guard.lock();
  }
  usage_.allocated_bytes -= b.bytes;
  --usage_.blocks;
  put_free(b);
  join_with_next(found);
  if (found != blocks_.begin()) join_with_next(std::prev(found));
}

}  // namespace

unique_fd make_memory_file(const char* name, std::size_t bytes) noexcept {
  const sigxfsz_block limit_is_an_error;
  unique_fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fd.reset();
  return fd;
}

std::optional<shared_place> find_shared(const void* data, std::size_t bytes) noexcept {
  // Acquire: the region is described before it is found. Its owner passed on memory in it by other means.
  for (const region* r = newest_region.load(std::memory_order_acquire); r != nullptr; r = r->next) {
    const std::uintptr_t offset =
        reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(r->base);
    if (offset >= r->bytes) continue;  // also below the base: the difference wraps
    if (bytes > r->bytes - offset) return std::nullopt;
    return shared_place{r->id, r->bytes, offset, r->fd.get()};
  }
  return std::nullopt;
}

void populate(const void* data, std::size_t bytes, bool to_write) noexcept {
  ::madvise(const_cast<void*>(data), bytes, to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

shared_memory_usage shared_memory_in_use() { return the_arena().usage(); }

}  // namespace tutti::base

namespace tutti::detail {

void* allocate_shared_bytes(std::size_t bytes, std::size_t alignment) {
  return base::the_arena().allocate(bytes, alignment);
}
void free_shared_bytes(void* memory) noexcept {
  if (memory != nullptr) base::the_arena().free(memory);
}

}  // namespace tutti::detail
