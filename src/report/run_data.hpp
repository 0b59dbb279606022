// SPDX-License-Identifier: Apache-2.0
// run_data: a run as its ranks have left it on disk, finished or not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti::report {

struct point {
  double step = 0;
  double value = 0;  // may be not a number
};

struct histogram_data {
  std::int64_t step = 0;
  double min = 0, max = 0;
  std::vector<double> limits, counts;
};

struct said_text {
  std::string name, content;
  std::int64_t step = 0;
};

struct file_data {
  std::string name;
  std::string path;  // in the run
  std::uint64_t bytes = 0;
  std::int64_t step = 0;
};

enum class rank_state {
  finished,
  closed,  // ended without finish()
  running,
  stopped,      // by a signal or a debugger, on this host
  died,         // its status says that it runs, and its process is gone
  unresponsive  // without a heartbeat for long: on another host, in another container, or it no longer writes
};
const char* name_of(rank_state s) noexcept;

struct rank_data {
  int rank = -1;      // its colour; for labels other than a rank's, a number after the ranks
  std::string label;  // empty: that of a rank
  int in_world = -1;  // its rank in the communicator that opened it; -1: none
  std::string key() const { return label.empty() ? std::to_string(rank) : label; }
  std::string name() const { return label.empty() ? "rank " + key() : label; }
  std::string host;
  std::int64_t pid = 0;
  rank_state state = rank_state::unresponsive;
  double opened = 0, heartbeat = 0;  // seconds since 1970
  std::uint64_t written = 0, dropped = 0, failed = 0;
  std::string failure;
  std::uint64_t unreadable_lines = 0;  // one at the end of a killed rank's file is normal

  // Each step once, ascending: after a restart, the later of two.
  std::map<std::string, std::vector<point>> series;
  std::map<std::string, histogram_data> histograms;  // the last of each
  std::map<std::string, std::string> hyperparameters;
  std::vector<said_text> texts;
  std::vector<file_data> images, artifacts;
  std::string output, error;  // the ends of its console
};

struct run_data {
  std::filesystem::path directory;
  std::string name;
  double created = 0;
  int size = 0;  // ranks of the communicator; some may have left nothing
  std::vector<std::pair<std::string, std::string>> facts, environment;  // how it was run
  std::vector<rank_data> ranks;     // ranks that have left something, ascending; then other labels
  std::vector<std::string> damage;  // sentences that name the damaged files
  // Ranks that have left nothing.
  int absent() const;
};

// Throws std::runtime_error, naming what is missing, if this is no run. Damaged parts are left out and
// named.
run_data read_run(const std::filesystem::path& directory);

// Whether a series is about time and machine rather than the program's own progress.
bool is_machine_series(const std::string& name);

// How a rank's time was spent, from its series time/compute, time/communication and time/waiting.
struct time_split {
  double compute = 0, communication = 0, waiting = 0;  // seconds in total
  double hidden = 0;  // communication overlapped by computation, not in the above
  std::size_t steps = 0;
  std::size_t slowest = 0;  // steps in which no rank computed longer
  double total() const noexcept { return compute + communication + waiting; }
};
// By rank, in the order of run.ranks; empty if no rank recorded it.
std::vector<time_split> times_of(const run_data& run);

}  // namespace tutti::report
