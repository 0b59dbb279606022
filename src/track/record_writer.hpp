// SPDX-License-Identifier: Apache-2.0
// record_writer: the thread that writes one rank's records, and how others wait for it without blocking.
#pragma once

#include "bootstrap/store_contents.hpp"
#include "comm/identity.hpp"
#include "track/rank_files.hpp"
#include "track/record_queue.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::track {

class gpu_sampler;
class process_sampler;

// Shared by the log and the thread, which is never joined: a disk that hangs holds up the thread only.
class record_writer : public std::enable_shared_from_this<record_writer> {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  record_writer(comm::identity who, track::options o, std::uint64_t number)
      : queue(o.buffer_bytes, o.full), who_(std::move(who)), options_(std::move(o)), number_(number) {}
  // Call it once. Throws errc::resources if there is no thread.
  void start();

  record_queue queue;

  // No more records come: `state` is "finished" or "closed". The rest is done by `deadline`, if the disk
  // allows.
  void close(const char* state, time_point deadline);

  // Any thread may call these.
  bool opened() const { return locked(opened_); }  // or failed to
  bool ended() const { return locked(ended_); }
  bool has_room() const { return queue.has_room(); }
  track::totals totals() const;
  std::filesystem::path directory() const { return locked(directory_); }
  // Of the axis of samples, once opened: seconds since 1970.
  double origin() const { return locked(origin_); }
  void rethrow_failure() const;
  const track::options& options() const noexcept { return options_; }

  // Completes when `done` returns true, or at the deadline; returns its value. Used on the executor's thread.
  task<bool> wait_until(bool (record_writer::*done)() const, boost::asio::any_io_executor executor,
                        time_point deadline);
  // Blocks; for a destructor.
  void wait_for_end(time_point deadline) const;

 private:
  // A copy, made under the lock.
  template <class T>
  T locked(const T& member) const {
    const std::lock_guard lock(mutex_);
    return member;
  }
  void run() noexcept;
  void record_all();
  void write(const std::vector<record>& some);
  void sample(process_sampler& process, gpu_sampler& gpu);
  int local_rank() const;
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
