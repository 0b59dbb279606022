// SPDX-License-Identifier: Apache-2.0
// The memory of the flight recorder. One rank writes it; a reader reads it, in another process or after the
// rank's death. It has fixed size and consists of words, so that a reader sees each word old or new, never
// half.
//
//   head | communicators | texts | operations (a ring) | spans (a ring)
//
// Only the rank writes its own recording; a reader trusts nothing that it finds there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::flight {

// Its last byte increases when the meaning of anything below changes.
inline constexpr std::uint64_t magic = 0x7475'7474'6966'6c02;

using word = std::atomic<std::uint64_t>;
static_assert(word::is_always_lock_free && sizeof(word) == 8);

inline constexpr std::uint64_t both(std::uint64_t high, std::uint32_t low) noexcept {
  return high << 32 | low;
}
inline constexpr std::uint32_t high_of(std::uint64_t w) noexcept {
  return static_cast<std::uint32_t>(w >> 32);
}
inline constexpr std::uint32_t low_of(std::uint64_t w) noexcept { return static_cast<std::uint32_t>(w); }

enum class phase : std::uint64_t { none, joining, member, leaving, left, failed };

// A writer clears an entry's mark, or its key, and fences with release before it writes the rest; a reader fences with
// acquire after it has read the rest, and looks at the mark again: it has the whole of one entry, or nothing.

// The state of an entry. `none`: never used, or being written.
enum class state : std::uint8_t { none, pending, done, failed, cancelled };

// Kinds beyond those of detail::operation_kind.
inline constexpr std::uint8_t kind_compute = 200;  // a job of tutti::compute
inline constexpr std::uint8_t kind_span = 201;     // a tutti::trace_span of the program
inline constexpr std::uint8_t kind_asleep = 202;   // the loop slept; only while tracing

// One operation, or one span.
struct alignas(64) entry {
  word mark;   // number of the entry << 8 | state; 0 while it is being written
  word start;  // cycles
  word end;    // cycles, once it has ended
  word bytes;
  word what;    // kind << 56 | text << 40 | line: the text is the file's name, or the span's own
  word place;   // communicator, its sequence of collectives (0: a message); for spans the thread
  word whom;    // peer or root, tag
  word detail;  // 1 + the rank of the world that it is seen to wait for << 48 | bytes that have come
};
static_assert(sizeof(entry) == 64);

// The place of an operation in the recording. Safe to use after other operations have taken the place.
struct handle {
  std::uint64_t number = 0;  // 0: none
  std::uint32_t place = 0;
};

struct alignas(64) communicator_entry {
  static constexpr std::uint64_t closed = std::uint64_t{1} << 63;  // its last handle has gone

  word key;    // 1 + id, with `closed`; 0: free
  word place;  // this rank there, its size
  word last;   // the last collective that was called there
  word failed;
  char name[96];
};
static_assert(sizeof(communicator_entry) == 128);

struct text_entry {
  word ready;
  char text[120];
};
static_assert(sizeof(text_entry) == 128);

struct alignas(64) head {
  word ready;                 // magic, once all else has been set
  word owner;                 // process, thread of the loop
  word rank;                  // in the world, its size
  word phase_;                // flight::phase
  word base_cycles, base_ns;  // read together
  word world;                 // identifies the world
  word joined;                // cycles
  word turned;                // the last turn of the loop, in cycles
  word asleep;                // start of the loop's sleep, in cycles; 0: it is awake
  word started, ended;        // operations so far
  word spans;                 // so far
  word compute_running;       // jobs of tutti::compute that have not returned
  char failure_text[512];     // why it failed
  word failed_ns;             // when an exception left main, on the clock of base::steady_ns
  word failed_code;           // its errc; 0: another exception
  word pid_space;             // the pid namespace of the owner's numbers; 0: not known

  // For readers.
  bool is_written() const noexcept { return ready.load(std::memory_order_acquire) == magic; }
  phase at() const noexcept { return static_cast<phase>(phase_.load(std::memory_order_acquire)); }
  int world_rank() const noexcept { return static_cast<int>(high_of(rank.load(std::memory_order_relaxed))); }
  int world_size() const noexcept { return static_cast<int>(low_of(rank.load(std::memory_order_relaxed))); }
  int pid() const noexcept { return static_cast<int>(high_of(owner.load(std::memory_order_relaxed))); }
};

inline constexpr std::size_t communicators = 64;
inline constexpr std::size_t texts = 256;
inline constexpr std::uint32_t no_text = texts;
inline constexpr std::size_t head_bytes = 4096;
inline constexpr std::size_t page_bytes = 4096;
static_assert(sizeof(head) <= head_bytes);

inline constexpr std::size_t least_operations = 64;
inline constexpr std::size_t most_operations = std::size_t{1} << 20;
inline constexpr std::size_t usual_operations = 1024;
// A trace needs all operations between two polls, not only the last ones.
inline constexpr std::size_t traced_operations = std::size_t{1} << 16;

// The sizes of both rings, powers of two.
struct shape {
  std::size_t operations = usual_operations;
  constexpr std::size_t spans() const noexcept { return operations / 4; }
  constexpr std::size_t bytes() const noexcept {
    const std::size_t all = head_bytes + communicators * sizeof(communicator_entry) +
                            texts * sizeof(text_entry) + (operations + spans()) * sizeof(entry);
    return (all + page_bytes - 1) / page_bytes * page_bytes;
  }
};

// The parts of one rank's memory. Does not own it.
class recording_view {
 public:
  recording_view() noexcept = default;
  recording_view(void* memory, shape s) noexcept : memory_(static_cast<std::byte*>(memory)), shape_(s) {}
  explicit operator bool() const noexcept { return memory_ != nullptr; }

  const shape& sizes() const noexcept { return shape_; }
  flight::head& head() const noexcept { return *at<flight::head>(0); }
  communicator_entry* communicator_entries() const noexcept { return at<communicator_entry>(head_bytes); }
  text_entry* text_entries() const noexcept {
    return at<text_entry>(head_bytes + communicators * sizeof(communicator_entry));
  }
  entry* operations() const noexcept {
    return at<entry>(head_bytes + communicators * sizeof(communicator_entry) + texts * sizeof(text_entry));
  }
  entry* spans() const noexcept { return operations() + shape_.operations; }
  // Nothing has been written here: first the head says so, for readers.
  void clear() const noexcept {
    head().ready.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    std::memset(memory_ + sizeof(word), 0, shape_.bytes() - sizeof(word));
  }

 private:
  template <class T>
  T* at(std::size_t offset) const noexcept {
    return reinterpret_cast<T*>(memory_ + offset);
  }
  std::byte* memory_ = nullptr;
  shape shape_;
};

}  // namespace tutti::flight
