// SPDX-License-Identifier: Apache-2.0
// The arena of shared memory and its registry: blocks do not overlap, are aligned, are found, and are merged
// and freed.
#include "base/shared_memory.hpp"

#include "support/child.hpp"
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <thread>
#include <tutti/shared_memory.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using base::find_shared;

namespace {

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

std::uint64_t pages_of_file(int fd) {
  struct stat information{};
  REQUIRE(::fstat(fd, &information) == 0);
  return static_cast<std::uint64_t>(information.st_blocks) * 512;
}

bool aligned(const void* p, std::size_t to) { return reinterpret_cast<std::uintptr_t>(p) % to == 0; }

// A block with known contents.
struct owned {
  owned(std::size_t count, std::uint64_t number) : span(new_bytes(count), count), name(number) {
    fill(span, name);
  }
  owned(const owned&) = delete;
  owned& operator=(const owned&) = delete;
  ~owned() { detail::free_shared_bytes(span.data()); }
  static std::byte* new_bytes(std::size_t count) {
    return static_cast<std::byte*>(detail::allocate_shared_bytes(count, 1));
  }
  bool intact() const {
    const std::vector<std::byte> wanted = filled(span.size(), name);
    return std::equal(wanted.begin(), wanted.end(), span.begin());
  }
  std::span<std::byte> span;
  std::uint64_t name;
};

struct alignas(1024) wide {
  char c[1024];
};

}  // namespace

TEST_CASE("shared memory: find_shared finds vectors and buffers in it, and nothing else") {
  const std::vector<float> ordinary(100'000);
  CHECK_FALSE(find_shared(ordinary.data(), 4));
  shared_vector<float> v(100'000);
  const auto whole = find_shared(v.data(), v.size() * sizeof(float));
  REQUIRE(whole);
  CHECK(whole->region > 0);
  CHECK(whole->fd >= 0);
  CHECK(whole->offset + v.size() * sizeof(float) <= whole->region_bytes);
  const auto part = find_shared(v.data() + 10, 4);
  REQUIRE(part);
  CHECK(part->region == whole->region);
  CHECK(part->offset == whole->offset + 40);
  CHECK_FALSE(find_shared(ordinary.data(), 4));
  // Not beyond the end, even if the sum overflows.
  CHECK_FALSE(find_shared(v.data(), whole->region_bytes - whole->offset + 1));
  CHECK_FALSE(find_shared(v.data(), ~std::size_t{0}));
  CHECK_FALSE(find_shared(nullptr, 1));
  // The file contains the same bytes.
  v[3] = 7;
  float seen = 0;
  REQUIRE(::pread(whole->fd, &seen, sizeof seen, static_cast<off_t>(whole->offset + 3 * sizeof(float))) ==
          sizeof seen);
  CHECK(seen == 7);
  // The file cannot shrink under a reader.
  CHECK(::ftruncate(whole->fd, 0) != 0);
}

TEST_CASE("shared memory: its allocator meets the requirements of containers") {
  static_assert(std::allocator_traits<shared_allocator<int>>::is_always_equal::value);
  CHECK(shared_allocator<int>() == shared_allocator<double>());
  shared_vector<int> v;
  for (int i = 0; i < 100'000; ++i) v.push_back(i);
  for (int i = 0; i < 100'000; ++i) REQUIRE(v[static_cast<std::size_t>(i)] == i);
  shared_vector<int> copy = v;
  shared_vector<int> moved = std::move(v);
  CHECK(copy == moved);
  copy.clear();
  copy.shrink_to_fit();
  std::list<int, shared_allocator<int>> nodes{1, 2, 3};
  std::map<int, int, std::less<>, shared_allocator<std::pair<const int, int>>> tree{{1, 2}, {3, 4}};
  CHECK(tree.at(3) == 4);
  CHECK(nodes.size() == 3);
  CHECK_THROWS_AS((void)shared_allocator<double>().allocate(~std::size_t{0} / 4), std::bad_array_new_length);
  CHECK_THROWS_AS((void)shared_allocator<char>().allocate(~std::size_t{0} - 100), std::bad_alloc);
  shared_allocator<int>().deallocate(shared_allocator<int>().allocate(0), 0);
}

TEST_CASE("shared memory: allocated elements are zero, and a buffer") {
  static_assert(Buffer<shared_vector<float>&> && WritableBuffer<shared_vector<float>&>);
  auto b = allocate_shared<int>(1000);
  CHECK(b.size() == 1000);
  for (const int x : b) REQUIRE(x == 0);
  b[7] = 5;
  shared_vector<int> other = std::move(b);
  CHECK(other[7] == 5);
  CHECK(find_shared(other.data(), 4000));
  CHECK(allocate_shared<double>(0).empty());
}

TEST_CASE("shared memory: alignment") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{65}, 5 * KiB}) {
    std::vector<std::unique_ptr<owned>> some;
    for (std::uint64_t i = 0; i < 20; ++i) {
      some.push_back(std::make_unique<owned>(bytes, i));
      CHECK(aligned(some.back()->span.data(), 64));
    }
    for (const auto& o : some) CHECK(o->intact());
  }
  const owned small(1, 1);
  for (const std::size_t bytes : {128 * KiB - 1, 128 * KiB, 128 * KiB + 1, 3 * MiB + 5}) {
    const owned large(bytes, 1);
    CHECK(aligned(large.span.data(), 4096));
  }
  shared_vector<wide> wides(5);
  CHECK(aligned(wides.data(), 1024));
}

TEST_CASE("shared memory: it grows, also by more than a region at once, and uses only touched pages") {
  const base::shared_memory_usage before = base::shared_memory_in_use();
  {
    const std::size_t huge = before.reserved_bytes + 300 * MiB;
    std::byte* sparse = owned::new_bytes(huge);
    const auto place = find_shared(sparse, huge);
    REQUIRE(place);
    sparse[0] = sparse[huge - 1] = std::byte{1};
    CHECK(pages_of_file(place->fd) < MiB);
    const base::shared_memory_usage during = base::shared_memory_in_use();
    CHECK(during.regions == before.regions + 1);
    CHECK(during.blocks == before.blocks + 1);
    detail::free_shared_bytes(sparse);
  }
  // The same range is reused, also for smaller blocks.
  std::byte* const again = owned::new_bytes(before.reserved_bytes + 200 * MiB);
  CHECK(base::shared_memory_in_use().regions == before.regions + 1);
  detail::free_shared_bytes(again);
  CHECK(base::shared_memory_in_use().allocated_bytes == before.allocated_bytes);
}

TEST_CASE("shared memory: pages are made ahead, as many as asked for") {
  constexpr std::size_t ahead = 64 * KiB;
  auto* const at = static_cast<std::byte*>(detail::allocate_shared_bytes(MiB, 4 * KiB));
  const auto place = find_shared(at, MiB);
  REQUIRE(place);
  // Pages of an earlier block go.
  REQUIRE(::fallocate(place->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(place->offset), MiB) == 0);
  const std::uint64_t before = pages_of_file(place->fd);
  // An emulator takes any advice, and does nothing.
  constexpr int no_advice = -1;
  if (::madvise(at, 0, MADV_POPULATE_WRITE) != 0 || ::madvise(at, 4 * KiB, no_advice) == 0) {
    detail::free_shared_bytes(at);
    TUTTI_SKIP("this kernel has no MADV_POPULATE_WRITE");
  }
  base::populate(at, ahead, true);
  CHECK(pages_of_file(place->fd) == before + ahead);
  at[ahead - 1] = std::byte{7};
  base::populate(at, ahead, false);
  CHECK(pages_of_file(place->fd) == before + ahead);
  CHECK(at[ahead - 1] == std::byte{7});
  detail::free_shared_bytes(at);
}

TEST_CASE("shared memory: freed large blocks return their pages and read as zeros afterwards") {
  shared_vector<std::byte> keep(1);
  auto* const at = new shared_vector<std::byte>(32 * MiB, std::byte{7});
  const auto place = find_shared(at->data(), at->size());
  REQUIRE(place);
  const std::uint64_t full = pages_of_file(place->fd);
  CHECK(full >= 32 * MiB);
  // A peer's mapping stays valid, and its pages are released as well.
  void* const peer =
      ::mmap(nullptr, 32 * MiB, PROT_READ, MAP_SHARED, place->fd, static_cast<off_t>(place->offset));
  REQUIRE(peer != MAP_FAILED);
  CHECK(static_cast<std::byte*>(peer)[32 * MiB - 1] == std::byte{7});
  delete at;
  CHECK(pages_of_file(place->fd) + 32 * MiB <= full);
  CHECK(static_cast<std::byte*>(peer)[32 * MiB - 1] == std::byte{0});
  ::munmap(peer, 32 * MiB);
}

TEST_CASE("shared memory: blocks of random sizes keep their bytes, and free blocks merge") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  random_numbers numbers(seed);
  const base::shared_memory_usage before = base::shared_memory_in_use();
  std::vector<std::unique_ptr<owned>> live;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    if (live.size() < 100 && !numbers.one_in(3)) {
      const std::size_t bytes = numbers.one_in(10) ? numbers.below(400 * KiB) : numbers.below(5000);
      live.push_back(std::make_unique<owned>(bytes, i));
      continue;
    }
    if (live.empty()) continue;
    const std::size_t which = numbers.below(live.size());
    REQUIRE(live[which]->intact());
    live[which] = std::move(live.back());
    live.pop_back();
  }
  for (const auto& o : live) REQUIRE(o->intact());
  live.clear();
  const base::shared_memory_usage after = base::shared_memory_in_use();
  CHECK(after.allocated_bytes == before.allocated_bytes);
  CHECK(after.blocks == before.blocks);
  // 100 blocks of at most 400 KiB fit into one region if free neighbours merge.
  CHECK(after.regions <= std::max<std::size_t>(before.regions, 1));
}

TEST_CASE("shared memory: threads allocate at once and free each other's blocks") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  const base::shared_memory_usage before = base::shared_memory_in_use();
  std::array<std::atomic<owned*>, 64> table{};
  std::atomic<int> damaged = 0;
  std::atomic<int> lost = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      random_numbers numbers(seed + t);
      for (int i = 0; i < 1500; ++i) {
        auto fresh =
            std::make_unique<owned>(numbers.one_in(20) ? 200 * KiB : numbers.below(3000), numbers.next());
        if (!find_shared(fresh->span.data(), fresh->span.size())) ++lost;
        const std::unique_ptr<owned> old(table[numbers.below(table.size())].exchange(fresh.release()));
        if (old && !old->intact()) ++damaged;
      }
    });
  for (std::thread& t : threads) t.join();
  for (auto& slot : table) delete slot.load();
  CHECK(damaged == 0);
  CHECK(lost == 0);
  CHECK(base::shared_memory_in_use().allocated_bytes == before.allocated_bytes);
}

TEST_CASE("shared memory: without memfd it falls back to ordinary memory") {
#ifdef __SANITIZE_ADDRESS__
  TUTTI_SKIP("UndefinedBehaviorSanitizer looks at objects through a pipe, and here are no descriptors");
#endif
  const std::size_t more = base::shared_memory_in_use().reserved_bytes + 100 * MiB;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // From here on no descriptor can be opened.
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    std::byte* const memory = owned::new_bytes(more);
    std::memset(memory, 3, MiB);
    const bool found = static_cast<bool>(find_shared(memory, MiB));
    detail::free_shared_bytes(memory);
    std::byte* const again = owned::new_bytes(more);
    ::_exit(!found && again == memory && again[5] == std::byte{0} ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("shared memory: above RLIMIT_FSIZE it falls back to ordinary memory, without SIGXFSZ") {
  child limited([](const auto&) {
    ::signal(SIGXFSZ, SIG_DFL);
    const rlimit most{65'536, 65'536};
    ::setrlimit(RLIMIT_FSIZE, &most);
    constexpr std::size_t in_no_region_yet = 4096 * MiB;
    auto* const bytes = static_cast<std::byte*>(detail::allocate_shared_bytes(in_no_region_yet, 1));
    bytes[0] = std::byte{1};
    const bool ordinary = !find_shared(bytes, 1);
    detail::free_shared_bytes(bytes);
    return ordinary ? 0 : 1;
  });
  CHECK(limited.end() == 0);
}
