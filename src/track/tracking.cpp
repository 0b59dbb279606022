// SPDX-License-Identifier: Apache-2.0
// Tracking: from a user's call to a record in the queue, and the thread that writes the records of a rank.
#include <tutti/track.hpp>

#include "base/log.hpp"
#include "base/signals_blocked.hpp"
#include "base/text.hpp"
#include "track/console_tee.hpp"
#include "track/event_encoding.hpp"
#include "track/machine_sample.hpp"
#include "track/rank_files.hpp"
#include "track/record_queue.hpp"
#include "track/run_facts.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <tutti/counters.hpp>
#include <tutti/error.hpp>
#include <tutti/extend/async_condition.hpp>
#include <tutti/extend/support.hpp>
#include <tutti/task.hpp>
#include <utility>
#include <vector>

namespace tutti::track {

using std::chrono::steady_clock;

// ---- the writer ----

// Shared by the log and the thread, which is never joined: a disk that hangs holds up the thread only.
class record_writer {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  record_writer(extend::identity who, track::options o, std::uint64_t number)
      : queue(o.buffer_bytes, o.full), who_(std::move(who)), options_(std::move(o)), number_(number) {}
  // Call it once. Throws errc::resources if there is no thread.
  static void start(const std::shared_ptr<record_writer>& self) {
    try {
      const base::signals_blocked for_the_thread;
      std::thread([self] { self->run(); }).detach();
    } catch (const std::system_error& e) {
      throw error(errc::resources, std::string("tracking has no thread to write with: ") + e.what());
    }
  }

  record_queue queue;

  // No more records come: `state` is "finished" or "closed". The rest follows by `deadline`, disk permitting.
  void close(const char* state, time_point deadline) {
    {
      const std::lock_guard lock(mutex_);
      final_state_ = state;
      deadline_ = deadline;
    }
    queue.close();
  }

  // Any thread may call these.
  bool opened() const { return locked(opened_); }  // or failed to
  bool ended() const { return locked(ended_); }
  bool has_room() const { return queue.has_room(); }
  track::totals totals() const {
    track::totals t = locked(totals_);
    t.dropped = queue.dropped();
    return t;
  }
  std::filesystem::path directory() const { return locked(directory_); }
  // Of the axis of samples, once opened: seconds since 1970.
  double origin() const { return locked(origin_); }
  void rethrow_failure() const {
    const std::lock_guard lock(mutex_);
    if (failure_) throw error(static_cast<errc>(failure_.value()), totals_.failure);
  }
  const track::options& options() const noexcept { return options_; }

  // Completes when `done` returns true, or at the deadline; returns its value. Used on the executor's thread, by
  // callers that keep this alive.
  task<bool> wait_until(bool (record_writer::*done)() const, extend::loop_executor executor,
                        time_point deadline) {
    return changed_.wait_until([this, done] { return (this->*done)(); }, executor, deadline, "tracking");
  }
  // Blocks; for a destructor.
  void wait_for_end(time_point deadline) const {
    std::unique_lock lock(mutex_);
    ended_changed_.wait_until(lock, deadline, [this] { return ended_; });
  }

 private:
  // How long records are collected before they are written together: also the most that a SIGKILL loses.
  static constexpr std::chrono::milliseconds linger{50};
  static constexpr std::size_t most_at_once_bytes = std::size_t{1} << 20;

  // A copy, made under the lock.
  template <class T>
  T locked(const T& member) const {
    const std::lock_guard lock(mutex_);
    return member;
  }

  void run() noexcept {
    base::set_log_rank(who_.rank);
    try {
      record_all();
    } catch (const std::exception& e) {
      const std::lock_guard lock(mutex_);
      const auto* const ours = dynamic_cast<const error*>(&e);
      failure_ = ours != nullptr ? ours->code() : make_error_code(errc::system);
      totals_.failure = e.what();
    }
    // Once this log is seen to have ended, its label may be opened again.
    files_.reset();
    queue.close();
    {
      const std::lock_guard lock(mutex_);
      opened_ = ended_ = true;
      totals_.complete = !failure_;
      // Under the lock: a waiting thread may end the process right after.
      ended_changed_.notify_all();
    }
    changed_.notify_all();
  }

  void record_all() {
    files_ = std::make_unique<rank_files>(who_, options_, number_);
    std::optional<console_tee> console;
    console_state_ = "off";
    if (options_.console) try {
        console.emplace(files_->console_stem());
        console_state_ = "captured";
      } catch (const std::runtime_error& e) {
        console_state_ = e.what();
      }
    {
      const std::lock_guard lock(mutex_);
      directory_ = files_->directory();
      origin_ = files_->origin();
      opened_ = true;
    }
    changed_.notify_all();

    const bool samples = options_.system_metrics.count() > 0;
    process_sampler process;
    std::optional<gpu_sampler> gpu;  // made on first use: that may take long
    const auto sample_now = [&] {
      if (!gpu) gpu.emplace(local_rank());
      sample(process, *gpu);
    };
    time_point next_sample =
        samples ? extend::after(steady_clock::now(), options_.system_metrics) : time_point::max();
    time_point next_heartbeat = steady_clock::now();
    for (;;) {
      const time_point now = steady_clock::now();
      if (now >= next_heartbeat) {
        put_status("running");
        next_heartbeat =
            options_.heartbeat.count() > 0 ? extend::after(now, options_.heartbeat) : time_point::max();
      }
      if (now >= next_sample) {
        sample_now();
        next_sample = extend::after(now, options_.system_metrics);
      }
      queue.wait(std::min(next_sample, next_heartbeat), linger);
      write(queue.take(most_at_once_bytes));
      if (queue.ended()) break;
    }

    if (samples) sample_now();
    if (console && !console->finish(locked(deadline_)))
      console_state_ = "captured; its end came too late";
    else if (console && console->in_use())
      console_state_ = "captured; something that this rank has started still writes to it";
    console.reset();
    put_status(locked(final_state_));
  }

  void write(const std::vector<record>& some) {
    if (some.empty()) return;
    std::uint64_t failed = 0;
    for (const record& r : some)
      if (!files_->put(r)) ++failed;
    if (!files_->flush()) failed = some.size();
    {
      const std::lock_guard lock(mutex_);
      totals_.failed += failed;
      totals_.written += some.size() - failed;
      const std::string& why = files_->failure();
      if (!why.empty() && totals_.failure.empty()) base::log_warning("tracking loses records: " + why);
      if (!why.empty()) totals_.failure = why;
    }
    queue.release();
    changed_.notify_all();
  }

  void sample(process_sampler& process, gpu_sampler& gpu) {
    const double time = seconds_since_1970();
    const auto step = static_cast<std::int64_t>(time - files_->origin());
    if (const std::optional<usage> now = process.take()) {
      files_->put({"system/cpu_percent", step, time, now->busy_percent});
      files_->put({"system/memory_mib", step, time, now->memory_mib});
    }
    if (const std::optional<usage> now = gpu.take()) {
      files_->put({"system/gpu_percent", step, time, now->busy_percent});
      files_->put({"system/gpu_memory_mib", step, time, now->memory_mib});
    }
    double load = 0;  // runnable processes of the machine, over the last minute
    if (::getloadavg(&load, 1) == 1) files_->put({"system/machine_load", step, time, load});
    files_->flush();
  }
  // How many ranks before this one are on its host.
  int local_rank() const {
    const auto me = who_.places.begin() + std::max(who_.rank, 0);
    return static_cast<int>(
        std::count_if(who_.places.begin(), me, [me](const extend::place& p) { return p.host == me->host; }));
  }
  void put_status(const char* state) { files_->put_status(state, totals(), console_state_); }

  const extend::identity who_;
  const track::options options_;
  const std::uint64_t number_;
  // Of the thread.
  std::unique_ptr<rank_files> files_;
  std::string console_state_;

  extend::async_condition changed_;
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_changed_;
  std::filesystem::path directory_;
  double origin_ = 0;
  track::totals totals_;  // but for what the queue has dropped
  std::error_code failure_;
  const char* final_state_ = "closed";
  time_point deadline_{};
  bool opened_ = false;
  bool ended_ = false;
};

// ---- the public functions ----

options::options()
    : system_metrics(std::chrono::seconds(5)),
      heartbeat(std::chrono::seconds(2)),
      open_timeout(std::chrono::seconds(10)),
      finish_timeout(std::chrono::seconds(10)) {}

value::value(float v) {
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof text, v).ptr;
  held_ = base::to_number<double>({text, static_cast<std::size_t>(end - text)}).value_or(v);
}

namespace impl {

// What the handles of one log share on the loop thread's side.
class owner {
 public:
  ~owner() {
    if (finishing) return;
    constexpr std::chrono::seconds patience(2);
    const auto deadline = steady_clock::now() + patience;
    writer->close("closed", deadline);
    writer->wait_for_end(deadline);
  }

  void push(std::string_view name, std::int64_t step, decltype(record::said) said) {
    writer->queue.push({std::string(name), step, seconds_since_1970(), std::move(said)});
    sample_messages();
  }

  // Since the last call; empty if not wanted.
  std::optional<usage> sample_process() {
    if (writer->options().system_metrics.count() == 0) return std::nullopt;
    const std::lock_guard lock(process_mutex);
    return process.take();
  }

  const std::shared_ptr<record_writer> writer;
  communicator world;  // empty once finishing, and without a communicator; used on the loop thread only
  const extend::loop_executor executor;
  const bool samples_only;
  bool finishing = false;  // as `world`

  // A rank's counters can be read only on its loop thread: together with the rank's records there.
  void sample_messages() {
    const auto interval = writer->options().system_metrics;
    if (std::this_thread::get_id() != loop_thread || interval.count() == 0 || !world) return;
    const auto now = steady_clock::now();
    if (now < next_sample) return;
    next_sample = now + interval;
    const counters n = counters_of(world);
    const double time = seconds_since_1970();
    const auto step = static_cast<std::int64_t>(time - writer->origin());
    for (const auto& [name, count] :
         {std::pair("communication/sends", n.sends), std::pair("communication/receives", n.receives),
          std::pair("communication/sleeps", n.parks), std::pair("communication/stalls", n.stalls)})
      writer->queue.push({name, step, time, static_cast<double>(count)});
  }

  const std::thread::id loop_thread = std::this_thread::get_id();
  steady_clock::time_point next_sample = extend::after(steady_clock::now(), writer->options().system_metrics);
  std::mutex process_mutex;
  process_sampler process;
};

}  // namespace impl

namespace {

// Number of this run on this rank of this communicator, from 0: the same on ranks that open runs in the same
// order.
std::uint64_t number_of_this_run(const extend::identity& who, const std::string& name) {
  static std::mutex mutex;
  static auto& opened =
      *new std::map<std::tuple<std::uint64_t, std::uint32_t, int, std::string>, std::uint64_t>;
  const std::lock_guard lock(mutex);
  return opened[{who.world, who.communicator, who.rank, name}]++;
}

// Tracking does not end a training: records without memory are counted.
template <class F>
void say(const std::shared_ptr<impl::owner>& owner, F said) noexcept {
  if (!owner) return;
  try {
    if (owner->samples_only) return owner->sample_messages();
    said(*owner);
  } catch (...) {
    owner->writer->queue.count_dropped();
  }
}

}  // namespace

log::operator bool() const noexcept { return owner_ && !owner_->samples_only; }

std::filesystem::path log::directory() const {
  return *this ? owner_->writer->directory() : std::filesystem::path();
}

void log::scalar(std::string_view name, std::int64_t step, double number) const noexcept {
  say(owner_, [&](impl::owner& o) { o.push(name, step, number); });
}

void log::text(std::string_view name, std::int64_t step, std::string_view value) const noexcept {
  say(owner_, [&](impl::owner& o) { o.push(name, step, std::string(value)); });
}

void log::histogram(std::string_view name, std::int64_t step, std::span<const float> values) const noexcept {
  say(owner_, [&](impl::owner& o) { o.push(name, step, std::vector<double>(values.begin(), values.end())); });
}

void log::histogram(std::string_view name, std::int64_t step, std::span<const double> values) const noexcept {
  say(owner_, [&](impl::owner& o) { o.push(name, step, std::vector<double>(values.begin(), values.end())); });
}

void log::image(std::string_view name, std::int64_t step, image_view p) const noexcept {
  say(owner_, [&](impl::owner& o) {
    if (!is_image(p.width, p.height, p.channels, p.samples.size())) return o.writer->queue.count_dropped();
    o.push(name, step, image_record{p.width, p.height, p.channels, {p.samples.begin(), p.samples.end()}});
  });
}

void log::hyperparameters(const hyperparameter_map& values) const noexcept {
  say(owner_, [&](impl::owner& o) { o.push({}, 0, values); });
}

void log::times(std::int64_t step, step_times seconds) const noexcept {
  scalar("time/compute", step, seconds.compute_seconds);
  scalar("time/communication", step, seconds.communication_seconds);
  scalar("time/waiting", step, seconds.waiting_seconds);
  const double communication = seconds.communication_seconds + seconds.hidden_seconds;
  if (seconds.hidden_seconds > 0) scalar("time/hidden", step, seconds.hidden_seconds);
  if (seconds.bytes > 0) {
    scalar("step/bytes", step, static_cast<double>(seconds.bytes));
    scalar("step/overlap", step, communication > 0 ? seconds.hidden_seconds / communication : 0);
  }
  say(owner_, [&](impl::owner& o) {
    const std::optional<usage> used = o.sample_process();
    if (!used) return;
    o.push("step/cpu_percent", step, used->busy_percent);
    o.push("step/memory_mib", step, used->memory_mib);
  });
}

void log::artifact(std::string_view name, std::span<const std::byte> bytes) const noexcept {
  say(owner_, [&](impl::owner& o) {
    if (!is_inside(name)) return o.writer->queue.count_dropped();
    o.push(name, 0, std::vector(bytes.begin(), bytes.end()));
  });
}

void log::artifact(std::string_view name, const std::filesystem::path& file) const noexcept {
  say(owner_, [&](impl::owner& o) {
    if (!is_inside(name)) return o.writer->queue.count_dropped();
    o.push(name, 0, std::filesystem::absolute(file));
  });
}

task<bool> log::room(std::chrono::milliseconds at_most) const {
  const std::shared_ptr<impl::owner> kept = owner_;
  if (!kept || kept->finishing) co_return true;
  const auto deadline = extend::after(steady_clock::now(), at_most);
  const bool there_is = co_await kept->writer->wait_until(&record_writer::has_room, kept->executor, deadline);
  co_return there_is;
}

totals log::so_far() const { return owner_ ? owner_->writer->totals() : totals(); }

task<totals> log::finish() const {
  const std::shared_ptr<impl::owner> kept = owner_;
  if (!kept) {
    totals nothing;
    nothing.complete = true;
    co_return nothing;
  }
  if (kept->finishing) co_return kept->writer->totals();
  kept->finishing = true;
  const communicator world = std::exchange(kept->world, {});  // until the end
  const auto deadline = extend::after(steady_clock::now(), kept->writer->options().finish_timeout);
  kept->writer->close("finished", deadline);
  co_await kept->writer->wait_until(&record_writer::ended, kept->executor, deadline);
  totals all = kept->writer->totals();
  if (!all.complete && all.failure.empty())
    all.failure = "the disk, or the reader of the console, took longer than options::finish_timeout";
  co_return all;
}

namespace {

task<log> open_by(extend::identity who, communicator c, extend::loop_executor executor, options o) {
  const std::uint64_t number = number_of_this_run(who, o.name);
  const bool samples_only = o.ranks == layout::rank_0_only && who.rank > 0;
  if (samples_only && o.system_metrics.count() == 0) co_return log();
  if (samples_only) o.console = false;
  const auto timeout = o.open_timeout;
  const std::string directory = o.directory;
  auto writer = std::make_shared<record_writer>(std::move(who), std::move(o), number);
  record_writer::start(writer);
  // Unless the log owns it in the end: this may also be cancelled.
  struct closes_writer {
    std::shared_ptr<record_writer> writer;
    ~closes_writer() {
      if (writer) writer->close("closed", steady_clock::now());
    }
  } opening{writer};
  const auto deadline = extend::after(steady_clock::now(), timeout);
  const bool is_open = co_await writer->wait_until(&record_writer::opened, executor, deadline);
  if (!is_open)
    throw error(errc::timed_out, "tracking could not open a run in " + directory + " within " +
                                     std::to_string(timeout.count()) + " ms: the disk does not answer");
  writer->rethrow_failure();
  co_return log(
      std::make_shared<impl::owner>(std::move(opening.writer), std::move(c), executor, samples_only));
}

}  // namespace

task<log> open(communicator c, options o) {
  if (!c)
    throw error(errc::invalid_argument, "tracking of an empty communicator: this rank is not a member of it");
  extend::identity who = extend::identity_of(c);
  const auto executor = c.get_executor();
  log opened = co_await open_by(std::move(who), std::move(c), executor, std::move(o));
  co_return opened;
}

task<log> open(options o) {
  if (o.id.empty())
    throw error(errc::invalid_argument,
                "tracking without a communicator needs options::id, the run that this process writes to");
  const auto executor = extend::executor_here("tracking was opened", "open it in a task that runs there");
  extend::identity who;
  who.rank = -1;
  log opened = co_await open_by(std::move(who), {}, executor, std::move(o));
  co_return opened;
}

}  // namespace tutti::track
