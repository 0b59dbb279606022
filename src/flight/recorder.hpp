// SPDX-License-Identifier: Apache-2.0
// recorder: the flight recorder of one rank: its last operations, always on. An operation costs some stores
// into two cache lines, and one that does not complete at once a reading of the processor's counter. It needs
// no allocation, lock or system call.
//
// The loop thread writes operations, communicators and the loop; any thread writes spans.
#pragma once

#include "base/cycles.hpp"
#include "flight/layout.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace tutti::flight {

// What is known of an operation when it starts.
struct operation_facts {
  std::uint8_t kind = 0;  // detail::operation_kind
  std::uint32_t communicator = 0;
  std::uint32_t sequence = 0;  // of a collective
  int peer = -1;               // or root, rank of the communicator
  int tag = -1;
  std::uint64_t bytes = 0;
  const char* file = nullptr;  // lives as long as the program
  std::uint32_t line = 0;
};

class recorder {
 public:
  // Without a clock, the processor's counter is read. `memory` is zero, or belonged to a rank that has gone.
  explicit recorder(recording_view memory, std::uint64_t (*clock)(const void*) noexcept = nullptr,
                    const void* clock_owner = nullptr) noexcept;
  recorder(const recorder&) = delete;
  recorder& operator=(const recorder&) = delete;

  std::uint64_t now() const noexcept { return clock_ == nullptr ? base::cycles() : clock_(clock_owner_); }
  recording_view memory() const noexcept { return memory_; }

  // ---- operations ----
  // Unless traced, times are those of the loop's last turn, some microseconds old, except the start of
  // operations that stay pending.

  [[gnu::always_inline]] handle begin(const operation_facts& what, std::uint64_t start) noexcept {
    return put(what, state::pending, start, 0);
  }
  handle begin(const operation_facts& what) noexcept { return begin(what, coarse_now()); }
  // Records an operation that completed at once.
  void note(const operation_facts& what, state how) noexcept {
    const std::uint64_t when = coarse_now();
    put(what, how, when, when);
    head_.ended.store(++ended_, std::memory_order_relaxed);
  }
  // Sets the exact start of an operation that stays pending. Returns it, or 0 if it was exact already.
  std::uint64_t stays(handle h) noexcept {
    if (traced_) return 0;
    const std::uint64_t when = now();
    operations_[h.place].start.store(when, std::memory_order_relaxed);
    return when;
  }
  void end(handle h, state how) noexcept {
    entry& e = operations_[h.place];
    head_.ended.store(++ended_, std::memory_order_relaxed);
    if (e.mark.load(std::memory_order_relaxed) >> 8 != h.number) return;
    const std::uint64_t start = e.start.load(std::memory_order_relaxed);
    const std::uint64_t when = std::max(start, coarse_now());
    e.end.store(when, std::memory_order_relaxed);
    e.mark.store(h.number << 8 | static_cast<std::uint64_t>(how), std::memory_order_release);
    by_kind_[(e.what.load(std::memory_order_relaxed) >> 56) % kinds].waited += when - start;
  }
  // Records that it is seen to wait for this rank of the world (-1: for none in particular).
  void waits_for(handle h, int world_rank) noexcept;
  // Records how many of its bytes have come.
  void moved(handle h, std::uint64_t bytes) noexcept;

  // By kind of operation: for those that did not complete at once, the total time from start to end, in
  // cycles.
  static constexpr std::size_t kinds = 64;
  struct totals {
    std::uint64_t calls = 0;
    std::uint64_t waited = 0;
  };
  const std::array<totals, kinds>& by_kind() const noexcept { return by_kind_; }

  // ---- spans, from any thread ----

  handle begin_span(std::uint8_t kind, std::uint32_t text, std::uint32_t line, std::uint64_t start) noexcept;
  void end_span(handle h, state how, std::uint64_t start, std::uint64_t end) noexcept;
  void compute_begun() noexcept { head_.compute_running.fetch_add(1, std::memory_order_relaxed); }
  void compute_ended() noexcept { head_.compute_running.fetch_sub(1, std::memory_order_relaxed); }

  // Returns the number of a file's name, which lives as long as the program; `no_text` if the table is full.
  std::uint32_t text_of(const char* file) noexcept {
    const std::size_t at = hash(file);
    return keys_[at].load(std::memory_order_acquire) == file ? static_cast<std::uint32_t>(at)
                                                             : find_text(at, file);
  }
  // The same for a text that may not.
  std::uint32_t text_of(std::string_view text) noexcept;

  // ---- communicators ----

  static constexpr std::size_t no_place = communicators;
  std::size_t open_communicator(std::uint32_t id, int rank, int size, std::string_view name) noexcept;
  void called(std::size_t place, std::uint32_t sequence) noexcept {
    if (place != no_place)
      memory_.communicator_entries()[place].last.store(sequence, std::memory_order_relaxed);
  }
  void communicator_failed(std::size_t place) noexcept {
    if (place != no_place) memory_.communicator_entries()[place].failed.store(1, std::memory_order_relaxed);
  }
  void close_communicator(std::size_t place) noexcept;

  // ---- the rank and its loop ----

  void joining(int rank, int size) noexcept;
  void joined(std::uint64_t world) noexcept;
  void ended(phase how, std::string_view why) noexcept;
  // An exception has left main; `code` is its errc, or 0.
  void failed(std::string_view why, int code) noexcept;
  void turned(std::uint64_t cycles) noexcept {
    last_turn_ = cycles;
    head_.turned.store(cycles, std::memory_order_relaxed);
  }
  void fell_asleep() noexcept;
  void woke_up() noexcept;
  // Makes times exact, and the loop's sleep a span, too.
  void trace(bool on) noexcept { traced_ = on; }
  bool traced() const noexcept { return traced_; }

 private:
  std::uint64_t coarse_now() const noexcept { return traced_ ? now() : last_turn_; }
  [[gnu::always_inline]] handle put(const operation_facts& what, state how, std::uint64_t start,
                                    std::uint64_t end) noexcept {
    std::uint32_t place = next_place_;
    if (is_pending(operations_[place])) place = pass_over_pending(place);
    next_place_ = (place + 1) & operations_mask_;
    const std::uint64_t number = ++started_;
    ++by_kind_[what.kind % kinds].calls;
    write(operations_[place], number, how, what.kind, text_of(what.file), what.line, what.bytes,
          both(what.communicator, what.sequence),
          both(static_cast<std::uint32_t>(what.peer), static_cast<std::uint32_t>(what.tag)), start, end);
    head_.started.store(number, std::memory_order_relaxed);
    return {number, place};
  }
  static bool is_pending(const entry& e) noexcept {
    return static_cast<state>(e.mark.load(std::memory_order_relaxed) & 0xff) == state::pending;
  }
  std::uint32_t pass_over_pending(std::uint32_t place) const noexcept;
  static std::size_t hash(const char* file) noexcept {
    const auto bits = reinterpret_cast<std::uintptr_t>(file);
    return (bits ^ bits >> 8) % texts;
  }
  // `text` for keys that stand for their content only; otherwise the key is the text.
  std::uint32_t find_text(std::size_t from, const char* key, std::string_view text = {}) noexcept;

  static void write(entry& e, std::uint64_t number, state how, std::uint8_t kind, std::uint32_t text,
                    std::uint32_t line, std::uint64_t bytes, std::uint64_t place, std::uint64_t whom,
                    std::uint64_t start, std::uint64_t end) noexcept {
    e.mark.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    e.start.store(start, std::memory_order_relaxed);
    e.end.store(end, std::memory_order_relaxed);
    e.bytes.store(bytes, std::memory_order_relaxed);
    e.what.store(static_cast<std::uint64_t>(kind) << 56 | static_cast<std::uint64_t>(text) << 40 | line,
                 std::memory_order_relaxed);
    e.place.store(place, std::memory_order_relaxed);
    e.whom.store(whom, std::memory_order_relaxed);
    e.detail.store(0, std::memory_order_relaxed);
    e.mark.store(number << 8 | static_cast<std::uint64_t>(how), std::memory_order_release);
  }

  const recording_view memory_;
  flight::head& head_;
  entry* const operations_;
  const std::uint32_t operations_mask_;
  std::uint64_t (*const clock_)(const void*) noexcept;
  const void* const clock_owner_;
  std::uint32_t next_place_ = 0;
  std::uint64_t started_ = 0;
  std::uint64_t ended_ = 0;
  std::array<totals, kinds> by_kind_{};
  bool traced_ = false;
  std::uint64_t last_turn_ = 0;
  std::uint64_t slept_since_ = 0;
  std::array<std::atomic<const char*>, texts> keys_{};
  std::mutex adding_;  // of texts
};

}  // namespace tutti::flight
