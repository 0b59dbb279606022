// SPDX-License-Identifier: Apache-2.0
// recordings: where recordings lie. The launcher of a node makes one piece of memory for all its ranks
// (TUTTI_FLIGHT names it). It outlives each rank, and each can read it. A rank without a launcher writes into
// memory of its own.
#pragma once

#include "base/cycles.hpp"
#include "base/unique_fd.hpp"
#include "flight/layout.hpp"
#include "flight/recorder.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace tutti::flight {

// Of the memory of a node's recordings, as /proc shows it.
inline constexpr const char* memory_name = "tutti-flight";

// Ranks that time out do so together, with the same to report. One of them says what all wait for; the others
// change nothing before it has read that. May lie in memory shared by processes; all zeros are a valid object.
class report_turn {
 public:
  // Returns true for the first caller within `quiet_ns`: it reads the recordings and calls has_read().
  bool take(std::int64_t quiet_ns) noexcept {
    const auto now = static_cast<std::uint64_t>(base::steady_ns());
    std::uint64_t last = taken_.load(std::memory_order_acquire);
    // The current holder may have read the clock later than this caller.
    if (last != 0 && static_cast<std::int64_t>(now - last) <= quiet_ns) return false;
    return taken_.compare_exchange_strong(last, now, std::memory_order_acq_rel);
  }
  void has_read() noexcept { read_.store(taken_.load(std::memory_order_relaxed), std::memory_order_release); }
  // Whether the holder has not yet read. Wait for it only some milliseconds: it may have died.
  bool being_read() const noexcept {
    return taken_.load(std::memory_order_acquire) != read_.load(std::memory_order_acquire);
  }

 private:
  word taken_ = 0;  // time by the steady clock, in nanoseconds
  word read_ = 0;   // the turn that is over
};

// The recordings of a node's ranks.
class recordings {
 public:
  // What concerns all of them: the first page.
  struct title {
    word ready;  // magic
    word ranks;
    word operations;
    word launcher;        // the process that explains when it gets SIGQUIT, as its pid namespace knows it
    word pid_space;       // that namespace; 0: not known
    word traced;          // 1: loops also record when they sleep
    report_turn reports;  // decides which of the node's ranks reports a timeout
    word stopped[64];     // the processes that set_stopped() has named
  };

  // Throws std::system_error.
  recordings(int ranks, shape s);
  // Opens the memory that TUTTI_FLIGHT names. Throws std::runtime_error if it is no such memory.
  explicit recordings(int fd);
  recordings(const recordings&) = delete;
  recordings& operator=(const recordings&) = delete;

  int descriptor() const noexcept { return fd_.get(); }
  int ranks() const noexcept { return ranks_; }
  title& front() const noexcept { return *reinterpret_cast<title*>(memory_.get()); }
  recording_view of(int local_rank) const noexcept;
  // Clears all recordings for another start of the ranks.
  void clear() noexcept;
  // Records that a process of another node has been stopped (SIGSTOP, a debugger), or continued, as its
  // launcher has seen. If many are stopped at once, some are not recorded.
  // `rank` is the number that the launcher started it with.
  void set_stopped(int rank, std::int64_t pid, bool on) noexcept;
  bool is_stopped(int rank, std::int64_t pid) const noexcept;

 private:
  base::unique_fd fd_;
  int ranks_ = 0;
  shape shape_;
  std::shared_ptr<std::byte> memory_;
};

// The variable that names `all` to the rank `local_rank`.
std::string variable_for(const recordings& all, int local_rank);
// How many operations of a rank are kept: TUTTI_FLIGHT_OPERATIONS, and not too few for a trace.
std::size_t wanted_operations(bool traced);

// One rank's place in this process: its memory and its recorder.
class recorder_slot : public std::enable_shared_from_this<recorder_slot> {
 public:
  // Takes a place in the launcher's memory, if there is one and no other rank of this process has it; else in
  // memory of its own, as a rank with a clock of its own does. `clock` as for the recorder.
  static std::shared_ptr<recorder_slot> take(std::uint64_t (*clock)(const void*) noexcept = nullptr,
                                             const void* clock_owner = nullptr);
  ~recorder_slot();
  flight::recorder& recorder() noexcept { return *recorder_; }
  // The launcher's memory, or null.
  recordings* node() const noexcept { return node_.get(); }
  // The slot of the rank that this thread works for, or null.
  static recorder_slot* current() noexcept;
  static void set_current(recorder_slot* s) noexcept;

 private:
  recorder_slot() = default;
  std::shared_ptr<recordings> node_;
  std::shared_ptr<std::byte> own_;
  std::unique_ptr<flight::recorder> recorder_;
};

// Calls f with the recording of every rank that this process can read. They stay valid while f runs; it may
// call this, too.
void for_each_recording(const std::function<void(recording_view)>& f);

// Whether the rank that is, or was, this process has left this world in order, or is about to. Empty if there
// is no recording of it: it is of another node, there is no launcher, or it was a rank of this process that
// has not failed.
std::optional<bool> has_left(int rank, std::uint64_t world, std::int64_t pid) noexcept;

// The process of the rank whose place TUTTI_FLIGHT names, if that one is in a world, and has started this process or one
// of its parents; otherwise 0. So it finds none without a launcher, nor in another pid namespace.
std::int64_t rank_around_this_process();

// Makes SIGUSR1, unless the program handles it, have the launcher explain. Without a launcher this process
// writes what its operations wait for to standard error.
void explain_at_signal() noexcept;

}  // namespace tutti::flight
