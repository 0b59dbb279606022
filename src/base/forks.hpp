// SPDX-License-Identifier: Apache-2.0
// Tells a forked child from its parent. Installs no handler of fork: the kernel clears a page in the child.
#pragma once

#include <atomic>

namespace tutti::base {
namespace forks_detail {

inline constinit std::atomic<unsigned> unwatched{1};
inline constinit std::atomic<std::atomic<unsigned>*> word{&unwatched};  // 0 in a child that has not asked yet
unsigned count_one() noexcept;

}  // namespace forks_detail

// From here on forks are counted. Costs a page of memory; does nothing the second time. Where the kernel cannot
// clear pages (before Linux 4.14), registers a handler with pthread_atfork.
void watch_forks() noexcept;

// A number that differs in a child that was forked after watch_forks(). Costs two reads of memory.
inline unsigned forks() noexcept {
  // Acquires what the thread that asked first has put into the page.
  const unsigned seen = forks_detail::word.load(std::memory_order_acquire)->load(std::memory_order_relaxed);
  return seen != 0 ? seen : forks_detail::count_one();
}

// A T in each process, made when it is first asked for. A forked child has its own, since a thread of its parent may
// hold a lock of the parent's. It outlives static objects.
template <class T>
class of_each_process {
 public:
  T& get() { return own().value; }
  // That of the process which has forked this one; null if there is none.
  T* parents() { return own().parents != nullptr ? &own().parents->value : nullptr; }

 private:
  struct entry {
    entry* const parents;
    const unsigned made_in = forks();
    T value{};
  };
  entry& own() {
    entry* now = latest_.load(std::memory_order_acquire);
    if (now != nullptr && now->made_in == forks()) return *now;
    watch_forks();
    auto* const mine = new entry{now};
    if (latest_.compare_exchange_strong(now, mine, std::memory_order_acq_rel)) return *mine;
    delete mine;
    return *now;
  }
  std::atomic<entry*> latest_{nullptr};
};

}  // namespace tutti::base
