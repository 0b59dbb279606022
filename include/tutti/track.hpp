// SPDX-License-Identifier: Apache-2.0
// Tracking: what every rank of a training measures, says and makes, in one directory that TensorBoard and
// tutti-report show. Link with tutti::track.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace tutti::track {

enum class layout {
  single_run,    // all ranks in one run: TensorBoard shows one plot of "loss", with a line per rank
  run_per_rank,  // a run of each rank, all in one group (directory): "loss" in each
  // What the other ranks say goes nowhere. Each keeps its own samples of processor, memory, GPU and messages
  // beside rank 0's files.
  rank_0_only
};

// What happens when a rank says more than its disk takes: either way it is counted.
enum class when_full { drop_oldest, drop_newest };

// Whether a run of this id exists already when it is opened.
enum class resume {
  must,  // errc::invalid_argument if it does not
  may,
  never  // errc::invalid_argument if another start has made it; nothing is written
};

struct options {
  // Not an aggregate: g++ 12 destroys braced temporaries in co_await expressions twice.
  options();

  std::string directory = "runs";  // where runs are; on several hosts, one that they share
  std::string
      name;  // of this run, the same on all ranks; empty: the time. A name that is taken gets "-2", ...
  // Of the run, in its directory: opening it again, after a restart or days later, from any process, goes on in
  // the same run. Empty: that of the job (TUTTI_JOB_ID, WORLD_SIZE: tutti-run sets them), so that its restarts
  // are one run, and so are the logs of a world before and after rejoin(); without a job, a new run. A single
  // word as for a directory: no slash, no dot in front, at most 100 bytes.
  std::string id;
  // What this rank's series are called; the same rules. Empty: "rank_<r>", and outside of a communicator
  // "<host>_<pid>". A label has one writer at a time.
  std::string label;
  track::resume resume = track::resume::may;
  layout ranks = layout::single_run;
  std::size_t buffer_bytes = std::size_t{32} << 20;  // of what has been said and is not yet written
  when_full full = when_full::drop_oldest;
  // Standard output and error also go to files, by a `tee` that outlives the rank. They belong to the
  // process: of several ranks in one (run_local), the first to open has them. Only while a program runs that
  // does not change descriptors 1 and 2.
  bool console = true;
  std::chrono::milliseconds
      system_metrics;  // between two samples of processor, memory, GPU (NVIDIA's) and messages (5 s); 0: none
  std::chrono::milliseconds heartbeat;       // between two signs of life on disk (2 s)
  std::chrono::milliseconds open_timeout;    // (10 s)
  std::chrono::milliseconds finish_timeout;  // (10 s)
};

// A hyperparameter.
class value {
 public:
  value(bool v) : held_(v) {}
  value(const char* v) : held_(std::string(v)) {}
  value(std::string v) : held_(std::move(v)) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  value(T v) : held_(static_cast<std::int64_t>(v)) {}
  value(float v);  // as its shortest decimal: 0.01F is 0.01
  template <std::floating_point T>
    requires(!std::same_as<T, float>)
  value(T v) : held_(static_cast<double>(v)) {}

  const std::variant<bool, std::int64_t, double, std::string>& held() const noexcept { return held_; }

 private:
  std::variant<bool, std::int64_t, double, std::string> held_;
};
using hyperparameter_map = std::map<std::string, value>;

// Rows from the top, pixels from the left, the samples of a pixel together: 1 (grey), 3 (RGB) or 4 (RGBA)
// bytes.
struct image_view {
  int width = 0;
  int height = 0;
  int channels = 1;
  std::span<const std::uint8_t> samples;
};

// Where the time of one step went.
struct step_times {
  double compute_seconds = 0;
  double communication_seconds = 0;  // in which nothing else was done
  double waiting_seconds = 0;        // for slower ranks, which tutti-report looks for the slowest of
  double hidden_seconds = 0;         // of communication behind computation
  std::uint64_t bytes = 0;           // that were communicated
};

struct totals {
  std::uint64_t written = 0;
  std::uint64_t dropped = 0;  // too much at once, or of a shape that cannot be
  std::uint64_t failed = 0;   // could not be written: `failure` says why
  bool complete = false;      // everything that was not dropped or failed is written
  std::string failure;
};

namespace detail {
class owner;
}

// One rank's part of a run. A cheap handle: copies share it. An empty one, or that of an unresponsive rank,
// takes everything and does nothing.
//
// Calls may come from any thread. None blocks, talks to another rank, or throws: each copies what it is given
// into a queue of bounded memory, which a thread of its own writes to this rank's own files. What cannot be
// kept is counted. After finish() calls do nothing.
//
// The last handle goes on the loop thread, before its world or runtime: without a finish() it waits up to two seconds
// for what is queued, and the run is marked as ended without one.
class log {
 public:
  log() noexcept = default;
  explicit log(std::shared_ptr<detail::owner> o) noexcept : owner_(std::move(o)) {}
  // Whether what this rank says is written.
  explicit operator bool() const noexcept;
  // Of the run (with run_per_rank, of this rank's); empty when what it says is not written.
  std::filesystem::path directory() const;

  // A number of the series `name`.
  void scalar(std::string_view name, std::int64_t step, double number) const noexcept;
  void text(std::string_view name, std::int64_t step, std::string_view value) const noexcept;
  // The distribution of these values; copies them.
  void histogram(std::string_view name, std::int64_t step, std::span<const float> values) const noexcept;
  void histogram(std::string_view name, std::int64_t step, std::span<const double> values) const noexcept;
  void image(std::string_view name, std::int64_t step, image_view pixels) const noexcept;
  // Added to what is there; each rank's own are kept beside those of the others.
  void hyperparameters(const hyperparameter_map& values) const noexcept;
  // Series time/compute, time/communication and time/waiting; time/hidden and step/overlap (the hidden share
  // of communication) and step/bytes where they are given; and, with system_metrics, what this process has
  // used since the last call: step/cpu_percent (of one core), and has now: step/memory_mib.
  void times(std::int64_t step, step_times seconds) const noexcept;
  // A file of this rank's in the run, with this name (which may have folders); a second of the same name gets
  // "-2", ...
  void artifact(std::string_view name, std::span<const std::byte> bytes) const noexcept;
  // The file is copied some time before finish() completes: leave it as it is until then.
  void artifact(std::string_view name, const std::filesystem::path& file) const noexcept;

  // Completes when half of the queue's memory is free, or after `at_most`: back-pressure for who would rather
  // wait than lose. True: there is room.
  task<bool> room(std::chrono::milliseconds at_most) const;

  // What has happened so far.
  totals so_far() const;
  // Writes what is queued, gives the console back and marks the run as finished. Completes then, or after
  // finish_timeout with complete = false (what is left goes on being written, if it can), whatever other
  // ranks do. On the loop thread. Does not throw for what the disk does. Cancellation: ends the wait.
  task<totals> finish() const;

 private:
  std::shared_ptr<detail::owner> owner_;
};

// Opens this rank's part of a run. Every rank of `c` that is to take part calls it, as often as the others,
// in whatever order and without waiting for each other: no message is sent. The ranks agree on the directory
// through the directory itself. Completes when this rank's files are there. Errors: errc::invalid_argument (a
// name with a slash), errc::system (what could not be made, and why), errc::timed_out (a disk that does not
// answer). On the loop thread of `c`, of which the log holds a handle until finish().
//
// A run whose id exists goes on. This rank's records follow those of its label; a record that a crash cut short
// is removed. A step that is said twice counts as it was said last; TensorBoard also drops what an earlier start
// said of that series at later steps. Errors also: errc::invalid_argument (an id
// or a label that is no word; an id that exists or is missing, by options::resume; a label that another log
// writes now, which is not touched).
task<log> open(communicator c, options o = {});

// Opens the run options::id from any process, which need not be in the run's world. Needs an id and a
// tutti::runtime: on its loop thread (errc::wrong_thread otherwise), which outlives the log. Completes when this
// label's files are there. Errors and cost: as of open(communicator, options), and errc::invalid_argument
// without an id. No samples of messages: there is no communicator.
task<log> open(options o);

}  // namespace tutti::track
