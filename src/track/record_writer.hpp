// SPDX-License-Identifier: Apache-2.0
// record_writer: the thread that writes one rank's records, and how others wait for it without blocking.
#pragma once

#include "base/log.hpp"
#include "bootstrap/store_contents.hpp"
#include "comm/identity.hpp"
#include "track/console_tee.hpp"
#include "track/machine_sample.hpp"
#include "track/rank_files.hpp"
#include "track/record_queue.hpp"

#include <signal.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tutti/detail/deadline.hpp>
#include <tutti/error.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::track {

// Shared by the log and the thread, which is never joined: a disk that hangs holds up the thread only.
class record_writer : public std::enable_shared_from_this<record_writer> {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  record_writer(comm::identity who, track::options o, std::uint64_t number)
      : queue(o.buffer_bytes, o.full), who_(std::move(who)), options_(std::move(o)), number_(number) {}
  // Call it once. Throws errc::resources if there is no thread.
  void start() {
    // Signals are for the program's own threads.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::string why;
    try {
      std::thread([self = shared_from_this()] { self->run(); }).detach();
    } catch (const std::system_error& e) {
      why = e.what();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!why.empty()) throw error(errc::resources, "tracking has no thread to write with: " + why);
  }

  record_queue queue;

  // No more records come: `state` is "finished" or "closed". The rest is done by `deadline`, if the disk
  // allows.
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

  // Completes when `done` returns true, or at the deadline; returns its value. Used on the executor's thread.
  task<bool> wait_until(bool (record_writer::*done)() const, boost::asio::any_io_executor executor,
                        time_point deadline) {
    const std::shared_ptr<record_writer> kept = shared_from_this();
    const bootstrap::store_contents::watch watch(changed_, "", executor);
    bool in_time = true;
    while (in_time && !(this->*done)()) in_time = co_await watch.changed().wait(deadline, "tracking");
    co_return (this->*done)();
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
    changed_.tell_all();
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
    changed_.tell_all();

    using std::chrono::steady_clock;
    const bool samples = options_.system_metrics.count() > 0;
    process_sampler process;
    std::optional<gpu_sampler> gpu;  // made on first use: that may take long
    const auto sample_now = [&] {
      if (!gpu) gpu.emplace(local_rank());
      sample(process, *gpu);
    };
    time_point next_sample =
        samples ? tutti::detail::after(steady_clock::now(), options_.system_metrics) : time_point::max();
    time_point next_heartbeat = steady_clock::now();
    for (;;) {
      const time_point now = steady_clock::now();
      if (now >= next_heartbeat) {
        put_status("running");
        next_heartbeat = tutti::detail::after(now, options_.heartbeat);
      }
      if (now >= next_sample) {
        sample_now();
        next_sample = tutti::detail::after(now, options_.system_metrics);
      }
      queue.wait(std::min(next_sample, next_heartbeat), linger);
      write(queue.take(most_at_once_bytes));
      if (queue.ended()) break;
    }

    if (samples) sample_now();
    if (console && !console->finish(locked(deadline_)))
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
    changed_.tell_all();
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
        std::count_if(who_.places.begin(), me, [me](const comm::place& p) { return p.host == me->host; }));
  }
  void put_status(const char* state) { files_->put_status(state, totals(), console_state_); }

  const comm::identity who_;
  const track::options options_;
  const std::uint64_t number_;
  // Of the thread.
  std::unique_ptr<rank_files> files_;
  std::string console_state_;

  bootstrap::store_contents changed_;  // without a key: coroutines of any loop watch it as they do a store's
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

}  // namespace tutti::track
