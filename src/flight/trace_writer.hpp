// SPDX-License-Identifier: Apache-2.0
// trace_writer: the time line of a job in Chrome's trace format (an array of events; Perfetto and
// chrome://tracing read it). It has operations, computations, the program's spans and the loop's sleep of all
// ranks whose recordings can be read. After each poll the file has everything seen so far, even if the ranks
// or this process are killed.
#pragma once

#include "base/unique_fd.hpp"
#include "flight/snapshot.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace tutti::flight {

// Times of this machine's clock are shifted by `clock_offset_ns`, and counted from `origin_ns` of the shifted
// clock.
struct trace_clock {
  std::int64_t origin_ns = 0;
  std::int64_t clock_offset_ns = 0;
};

// In this time a rank does not start as many operations as its ring holds.
inline constexpr std::chrono::milliseconds between_trace_polls{10};
// Set by TUTTI_TRACE_MIB.
std::uint64_t most_trace_bytes();

class trace_writer {
 public:
  // Throws std::system_error if the file cannot be made. Beyond `most_bytes` events are only counted.
  trace_writer(const std::string& path, trace_clock clock, std::uint64_t most_bytes);
  trace_writer(const trace_writer&) = delete;
  trace_writer& operator=(const trace_writer&) = delete;
  ~trace_writer() { finish(); }

  // Applies to what is written from now on.
  void set_clock_offset(std::int64_t ns) noexcept { clock_.clock_offset_ns = ns; }
  // Writes what has ended since the last poll of this recording, which is of this rank. Call it before a rank
  // has started as many operations as its ring holds; overwritten ones are counted as lost.
  void poll(int rank, const recording_view& of, std::string_view host);
  // That memory is going away: writes what has not ended.
  void over(const recording_view& of);
  // Passes written data to the kernel.
  void flush();
  // Writes what has never ended, and ends the file.
  void finish();

  struct totals {
    std::uint64_t events = 0;
    std::uint64_t lost = 0;      // overwritten before they were read
    std::uint64_t left_out = 0;  // beyond the size limit of the file
    int error = 0;               // errno of writing; nothing more was written then
  };
  const totals& counts() const noexcept { return counts_; }
  // What is missing in the file, and what helps; a sentence each.
  std::vector<std::string> losses() const;
  // For collectives that all their ranks were seen to call: how often each rank came last, and its total
  // delay behind the first.
  struct lateness {
    std::uint64_t times = 0;
    std::int64_t behind_ns = 0;
  };
  const std::map<int, lateness>& last_to_come() const noexcept { return last_to_come_; }
  std::uint64_t collectives() const noexcept { return collectives_; }

 private:
  struct ring {
    std::uint64_t seen = 0;  // the highest number
    std::size_t place = 0;
    std::map<std::size_t, std::uint64_t> open;  // index and number of pending ones
  };
  struct rank_state {
    int rank = -1;
    int process = -1;            // in the file
    std::uint64_t recorder = 0;  // identifies it: a restarted rank has another
    recording_view memory;       // empty once it is over
    ring operations, spans;
    std::map<int, std::vector<std::int64_t>> rows;  // by group: the end of the last event on each
    std::map<std::uint32_t, communicator_snapshot> communicators;
  };
  struct arrivals {
    int came = 0;
    int last_rank = -1, last_process = -1;
    std::int64_t first_ns = 0, last_ns = 0;
  };

  void drain(rank_state& state, ring& r, const entry* entries, std::size_t count, const time_map& times);
  void close_open(rank_state& state);
  void write_event(rank_state& state, const operation_snapshot& o, std::int64_t now_ns);
  void note_arrival(const rank_state& state, const communicator_snapshot& c, const operation_snapshot& o);
  int free_process(int rank) const;
  int row_for(rank_state& state, int group, const char* name, std::int64_t start, std::int64_t end);
  void put_name(const char* of, int process, int track, const std::string& name, int sort_index);
  void put(std::string_view event);
  double microseconds(std::int64_t ns) const noexcept {
    return static_cast<double>(ns + clock_.clock_offset_ns - clock_.origin_ns) / 1000;
  }
  const communicator_snapshot* communicator(rank_state& state, std::uint32_t id);

  base::unique_fd file_;
  trace_clock clock_;
  std::uint64_t most_bytes_;
  std::string buffer_;
  std::uint64_t bytes_ = 0;
  totals counts_;
  std::map<const head*, rank_state> ranks_;
  // By world, communicator and sequence.
  std::map<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>, arrivals> arrivals_;
  std::map<int, lateness> last_to_come_;
  std::uint64_t collectives_ = 0;
  bool finished_ = false;
};

// `text` as a JSON string with quotes.
std::string json_string(std::string_view text);

// TUTTI_TRACE=FILE: ranks not started by tutti-run write the time line of their process themselves, by a
// thread that only the end of the process waits for.

// Whether TUTTI_TRACE requests it; if so, starts the thread.
bool trace_this_process();
// Writes the last operations of a recording that is going away. The caller holds the lock of
// for_each_recording.
void write_last(const recording_view& of) noexcept;

}  // namespace tutti::flight
