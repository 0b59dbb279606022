// SPDX-License-Identifier: Apache-2.0
// Long copies into and out of memory that two cores share, one writing, the other reading.
//
//   writer  `rep movsb` if it is fast on the processor: takes whole lines without reading them first.
//           Ordinary stores first fetch each line from the reader's cache, which takes three to four times as
//           long without a common cache (AMD family 26).
//           Past the caches, where writing takes long all the same: between cores without a common cache of
//           AMD family 25, 1 MiB then takes 47 us, not 440. With a common cache it would take 2.5 times as
//           long. A hypervisor moves cores, so the writer times some of its copies.
//   reader  loads and stores. `rep movsb` takes twice as long there for seconds on end (AMD family 26).
//
// Both copy like memcpy. A release store after a copy publishes its data. Blocks below 16 KiB use memcpy,
// which knows the start-up cost of each way on this processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::base {

// Copies from a process's own memory into a ring in shared memory.
class ring_writer {
 public:
  // Blocks of fewer bytes are not timed.
  static constexpr std::size_t sample_bytes = 8 * 1024;
  // So many samples decide, by their mean. With a common cache it is 0.1 to 1 us, without one 2.3 to 2.9 us
  // (AMD family 25).
  static constexpr int samples = 8;
  static constexpr std::int64_t slow_ns = 1'600;
  // A longer sample is an interruption, and counts as this.
  static constexpr std::int64_t longest_sample_ns = 5'000;
  // Nothing is timed until so much has been written in one way: lines that are new, or were written past the
  // caches, say nothing about the reader. More than any ring has.
  static constexpr std::size_t settling_bytes = 4 * 1024 * 1024;
  // Stores go past the caches for so long until the next try: the shortest time at first, and twice as long
  // each time that the try is slow.
  static constexpr std::int64_t shortest_ns = 20'000'000;
  static constexpr std::int64_t longest_ns = 320'000'000;

  void copy(void* to, const void* from, std::size_t bytes) noexcept {
    bytes < sample_bytes ? static_cast<void>(std::memcpy(to, from, bytes)) : copy_long(to, from, bytes);
  }

  // Whether stores go past the caches.
  bool past_caches() const noexcept { return past_caches_; }
  // Learns from a sample of ordinary stores that took `ns` and ended at `now`, by the host's clock.
  void took(std::int64_t ns, std::int64_t now) noexcept;
  // Goes back to ordinary stores, to try them, if it is time.
  void retry(std::int64_t now) noexcept;

 private:
  static constexpr unsigned copies_per_sample = 8;

  void copy_long(void* to, const void* from, std::size_t bytes) noexcept;

  bool past_caches_ = false;
  bool trying_ = true;  // each copy is a sample until they decide
  unsigned copies_ = 0;
  int samples_ = 0;
  std::int64_t total_ns_ = 0;  // of these samples
  std::size_t to_settle_ = settling_bytes;
  std::int64_t retry_ns_ = 0;
  std::int64_t pause_ns_ = shortest_ns;
};

// Begins to fetch the cache lines of memory that this core will write soon, and another core has read. Stores leave
// a core in order, so without it all later ones wait for these lines. Does nothing for more than 4 KiB: from 16 KiB
// on, fetching takes longer than it saves (AMD family 25).
inline void fetch_to_write(const void* place, std::size_t bytes) noexcept {
  constexpr std::size_t most_bytes = 4096, line_bytes = 64;
  if (bytes > most_bytes) return;
  const auto* const at = static_cast<const std::byte*>(place);
  for (std::size_t i = 0; i < bytes; i += line_bytes) {
#if defined(__x86_64__)
    // From __builtin_prefetch(at, 1), g++ makes a prefetch for reading.
    asm volatile("prefetchw %0" : : "m"(at[i]));
#else
    __builtin_prefetch(at + i, 1);
#endif
  }
}

inline constexpr std::size_t least_long_bytes = 16 * 1024;
void copy_out_long(void* to, const void* from, std::size_t bytes) noexcept;

// Copies from shared memory into a process's own.
inline void copy_out(void* to, const void* from, std::size_t bytes) noexcept {
  bytes < least_long_bytes ? static_cast<void>(std::memcpy(to, from, bytes)) : copy_out_long(to, from, bytes);
}

}  // namespace tutti::base
