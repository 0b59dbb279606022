// SPDX-License-Identifier: Apache-2.0
#include "base/forks.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace tutti::base {
namespace forks_detail {
namespace {

std::atomic<unsigned> last{1};

void begin_watching() noexcept {
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const page = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED && ::madvise(page, size, MADV_WIPEONFORK) == 0) {
    word.store(new (page) std::atomic<unsigned>(last.load()), std::memory_order_release);
    return;
  }
  if (page != MAP_FAILED) ::munmap(page, size);
  ::pthread_atfork(nullptr, nullptr, [] { unwatched.store(0, std::memory_order_relaxed); });
}

}  // namespace

// Several threads of a child may ask at once.
unsigned count_one() noexcept {
  std::atomic<unsigned>& here = *word.load(std::memory_order_relaxed);
  const unsigned next = last.load() + 1;
  last.store(next);
  unsigned cleared = 0;
  return here.compare_exchange_strong(cleared, next) ? next : cleared;
}

}  // namespace forks_detail

void watch_forks() noexcept {
  static const bool once = (forks_detail::begin_watching(), true);
  static_cast<void>(once);
}

}  // namespace tutti::base
