// SPDX-License-Identifier: Apache-2.0
// Tracking: writes the measurements, texts and files of every rank of a training to one directory.
// TensorBoard and tutti-report show it. Link with tutti::track.
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
#include <variant>

namespace tutti::track {

// How ranks are arranged into runs.
enum class layout {
  // All ranks in one run: TensorBoard shows one plot of "loss" with a line per rank.
  single_run,
  // One run per rank, all in one directory: each run has its own "loss".
  run_per_rank,
  // Only rank 0's measurements are written, and every rank's samples of processor, memory, GPU and messages.
  rank_0_only
};

// Which records to drop when a rank produces more than its disk takes. Dropped records are counted.
enum class when_full { drop_oldest, drop_newest };

// Whether open() may find a run of the given id.
enum class resume {
  // errc::invalid_argument if the run does not exist.
  must,
  may,
  // errc::invalid_argument if another start made the run; nothing is written.
  never
};

// Options of open().
struct options {
  // User-provided for g++ 12, as that of init_options.
  options();

  // The directory of all runs; with several hosts, one that they share.
  std::string directory = "runs";
  // Name of this run, the same on all ranks. Empty: the time. A name that exists gets a suffix "-2", ...
  std::string name;
  // Id of the run in its directory. Opening the same id again continues the run: after a restart or days
  // later, from any process. Empty: the job's id (TUTTI_JOB_ID and WORLD_SIZE, which tutti-run sets).
  // Restarts of a job are then one run, and so are the logs before and after rejoin(). Without a job, a new
  // run. An id is a single word: no slash, no leading dot, at most 100 bytes.
  std::string id;
  // Label of this rank's series; the rules of an id apply. Empty: "rank_<r>", or "<host>_<pid>" without a
  // communicator. A label has one writer at a time.
  std::string label;
  track::resume resume = track::resume::may;
  layout ranks = layout::single_run;
  // Size limit of the queue of records not yet written.
  std::size_t buffer_bytes = std::size_t{32} << 20;
  when_full full = when_full::drop_oldest;
  // Also copies standard output and error to files, through a `tee` process that outlives the rank. The
  // streams belong to the process: among several ranks in one process (run_local) the first to open gets
  // them. Requires that the program does not change descriptors 1 and 2 meanwhile.
  bool console = true;
  // Interval of samples of processor, memory, GPU (NVIDIA's) and messages: 5 s if not set. 0: no samples.
  std::chrono::milliseconds system_metrics;
  // Interval at which the rank's status file is renewed: 2 s if not set. 0: never, so a reader on another host cannot
  // tell that the rank is alive.
  std::chrono::milliseconds heartbeat;
  // Limit of open(): 10 s if not set.
  std::chrono::milliseconds open_timeout;
  // Limit of log::finish(): 10 s if not set.
  std::chrono::milliseconds finish_timeout;
};

// The value of a hyperparameter.
class value {
 public:
  value(bool v) : held_(v) {}
  value(const char* v) : held_(std::string(v)) {}
  value(std::string v) : held_(std::move(v)) {}
  value(char v) : held_(std::string(1, v)) {}
  // Other characters and pointers would become numbers or true.
  value(wchar_t) = delete;
  value(char8_t) = delete;
  value(char16_t) = delete;
  value(char32_t) = delete;
  template <class T>
  value(const T*) = delete;
  // Stores numbers from 2^63 on as text.
  template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>)
  value(T v) : held_(static_cast<std::int64_t>(v)) {
    if (v > 0 && static_cast<std::int64_t>(v) < 0) held_ = std::to_string(v);
  }
  // Stores the shortest decimal of the float: 0.01F is 0.01.
  value(float v);
  template <std::floating_point T>
    requires(!std::same_as<T, float>)
  value(T v) : held_(static_cast<double>(v)) {}

  const std::variant<bool, std::int64_t, double, std::string>& held() const noexcept { return held_; }

 private:
  std::variant<bool, std::int64_t, double, std::string> held_;
};
using hyperparameter_map = std::map<std::string, value>;

// An image: rows from the top, pixels from the left, each of 1 (grey), 3 (RGB) or 4 (RGBA) bytes.
struct image_view {
  int width = 0;
  int height = 0;
  int channels = 1;
  std::span<const std::uint8_t> samples;
};

// How one step spent its time.
struct step_times {
  double compute_seconds = 0;
  // Communication that no other work overlapped.
  double communication_seconds = 0;
  // Waiting for slower ranks; tutti-report finds the slowest by it.
  double waiting_seconds = 0;
  // Communication overlapped by computation.
  double hidden_seconds = 0;
  // Bytes communicated.
  std::uint64_t bytes = 0;
};

// The fate of the records of one log.
struct totals {
  std::uint64_t written = 0;
  // Records that were too many at once, or had an impossible shape.
  std::uint64_t dropped = 0;
  // Records that could not be written; `failure` says why.
  std::uint64_t failed = 0;
  // Every record that was not dropped or failed is written; otherwise `failure` says why not.
  bool complete = false;
  std::string failure;
};

namespace impl {
class owner;
}

// One rank's part of a run. A cheap handle: copies share it. An empty handle, or that of a rank whose
// records are not written (layout::rank_0_only), accepts every call and does nothing.
//
// Calls may come from any thread. None blocks, sends messages to other ranks, or throws. Each copies its
// arguments into a queue of bounded memory; a separate thread writes the queue to this rank's own files.
// Records that do not fit are counted. After finish() calls do nothing.
//
// Destroy the last handle on the loop thread, before its world or runtime. Without finish() that waits up to
// two seconds for queued records and marks the run as ended without finish().
class log {
 public:
  log() noexcept = default;
  explicit log(std::shared_ptr<impl::owner> o) noexcept : owner_(std::move(o)) {}
  // Whether this rank's records are written.
  explicit operator bool() const noexcept;
  // The directory of the run; with run_per_rank, of this rank's. Empty if this rank's records are not written.
  std::filesystem::path directory() const;

  // Adds a number to the series `name`.
  void scalar(std::string_view name, std::int64_t step, double number) const noexcept;
  // Adds a text to the series `name`.
  void text(std::string_view name, std::int64_t step, std::string_view value) const noexcept;
  // Adds the distribution of these values, which are copied.
  void histogram(std::string_view name, std::int64_t step, std::span<const float> values) const noexcept;
  void histogram(std::string_view name, std::int64_t step, std::span<const double> values) const noexcept;
  // Adds an image to the series `name`; copies the pixels.
  void image(std::string_view name, std::int64_t step, image_view pixels) const noexcept;
  // Adds hyperparameters to those of earlier calls. Each rank's are kept separately.
  void hyperparameters(const hyperparameter_map& values) const noexcept;
  // Writes the series time/compute, time/communication and time/waiting. If the values are given, also
  // time/hidden, step/overlap (the hidden share of communication) and step/bytes. With system_metrics, also
  // step/cpu_percent (of one core, since the last call) and step/memory_mib (now).
  void times(std::int64_t step, step_times seconds) const noexcept;
  // Stores these bytes as a file of this rank. The name may have folders; one that exists gets a suffix "-2", ...
  void artifact(std::string_view name, std::span<const std::byte> bytes) const noexcept;
  // Stores a copy of the file. It is copied some time before finish() completes: do not change it until then.
  void artifact(std::string_view name, const std::filesystem::path& file) const noexcept;

  // Waits until half of the queue's memory is free, but not longer than `at_most`. For programs that prefer
  // waiting to dropped records. Returns whether there is room.
  task<bool> room(std::chrono::milliseconds at_most) const;

  // The counts so far.
  totals so_far() const;
  // On the loop thread: writes the queued records, restores the console and marks the run as finished.
  // Completes: when all is written. After finish_timeout it completes with complete = false; the rest is
  // still written if the disk allows. Does not depend on other ranks.
  // Errors: does not throw for errors of the disk.
  // Cancellation: ends the wait.
  task<totals> finish() const;

 private:
  std::shared_ptr<impl::owner> owner_;
};

// Opens this rank's part of a run, on the loop thread of `c`. Every rank of `c` that takes part calls it equally
// often, in any order: the ranks agree through the directory. The log holds a handle of `c` until finish().
//
// If the id exists, the run continues. This rank's records follow the earlier ones of its label; a record cut
// short by a crash is removed. If a series has a step twice, the later record counts. TensorBoard also drops
// later steps of that series from earlier starts.
// Completes: when this rank's files exist.
// Errors: errc::invalid_argument: a name with a slash, or an id or label that is not a word. Also an id that
// options::resume rejects, or a label that another log is writing (which is left alone). errc::system:
// something could not be created; the text says why. errc::timed_out: the disk does not answer.
task<log> open(communicator c, options o = {});

// Opens the run options::id from any process, which need not be in the run's world, on the loop thread of a
// tutti::runtime that outlives the log. There are no samples of messages, because there is no communicator.
// Completes: when this label's files exist.
// Errors: as open(communicator, options); errc::invalid_argument without an id, errc::wrong_thread without a runtime.
task<log> open(options o);

}  // namespace tutti::track
