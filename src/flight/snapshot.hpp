// SPDX-License-Identifier: Apache-2.0
// snapshot: the contents of a recording at one moment, as values: read by another process, sent between
// launchers, explained.
#pragma once

#include "base/process_state.hpp"
#include "flight/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::flight {

// Converts cycles of this machine to nanoseconds of its clock.
class time_map {
 public:
  explicit time_map(const head& of) noexcept;
  std::int64_t ns(std::uint64_t cycles) const noexcept;
  std::int64_t duration_ns(std::uint64_t cycles) const noexcept {
    return static_cast<std::int64_t>(static_cast<double>(cycles) * ns_per_cycle_);
  }
  std::int64_t now_ns() const noexcept { return now_ns_; }

 private:
  std::uint64_t base_cycles_;
  std::int64_t base_ns_;
  std::int64_t now_ns_;
  double ns_per_cycle_;
};

struct operation_snapshot {
  std::uint64_t number = 0;
  std::uint8_t kind = 0;
  state how = state::none;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;  // of an operation that has ended
  std::uint64_t bytes = 0;
  std::uint64_t moved = 0;
  std::uint32_t communicator = 0;  // for spans the thread
  std::uint32_t sequence = 0;      // of a collective; 0: a message
  int peer = -1;
  int tag = -1;
  int waits_for = -1;  // rank of the world
  std::string text;    // the file of the call, or the span's name
  std::uint32_t line = 0;

  std::string where() const;  // "train.cpp:81", or empty
};

struct communicator_snapshot {
  std::uint32_t id = 0;
  int rank = -1;
  int size = 0;
  std::uint32_t last = 0;  // the last collective that was called
  bool failed = false;
  std::string name;
};

struct rank_snapshot {
  int rank = -1;  // of the world
  std::uint64_t world = 0;
  int pid = 0;
  phase at = phase::none;
  base::process_state thread = base::process_state::unknown;  // of the loop
  std::int64_t now_ns = 0;
  std::int64_t since_ns = 0;   // start of joining, or of membership
  std::int64_t turned_ns = 0;  // the loop's last turn
  std::int64_t asleep_ns = 0;  // start of the loop's sleep; 0: it is awake
  std::uint64_t compute_running = 0;
  std::string host;                         // empty: this one
  std::string failure_text;                 // why it failed
  std::string end;                          // how the process ended, as far as seen; empty: it has not
  std::vector<operation_snapshot> pending;  // oldest first
  std::vector<operation_snapshot> recent;   // ended, the last first
  std::vector<operation_snapshot> doing;    // spans that have not ended
  std::vector<communicator_snapshot> communicators;

  const communicator_snapshot* communicator(std::uint32_t id) const;  // null: it has none
};

// Reads one entry; returns false if it is free or was being written.
bool read(const entry& from, operation_snapshot& into, const recording_view& of, const time_map& times);
// The same; `even_closed`: also of one whose last handle has gone.
std::optional<communicator_snapshot> read(const communicator_entry& from, bool even_closed = false);
// Reads a recording; phase::none and nothing else if no rank has written in it. At most `recent` ended
// operations.
rank_snapshot read(const recording_view& from, std::size_t recent);

}  // namespace tutti::flight
