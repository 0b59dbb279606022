// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"
#include "base/log.hpp"
#include "flight/recordings.hpp"
#include "flight/trace_writer.hpp"

#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>

namespace tutti::flight {
namespace {

class process_trace;
process_trace* instance = nullptr;

// All uses of `writer_` are under the lock of for_each_recording.
class process_trace {
 public:
  explicit process_trace(std::string path)
      : path_(std::move(path)), thread_([this](const std::stop_token& stop) { work(stop); }) {}
  ~process_trace() {
    instance = nullptr;
    if (::getpid() != process_) {  // a child that has neither the thread nor the ranks
      thread_.detach();
      return;
    }
    thread_.request_stop();
    thread_.join();
    check_all();
    if (writer_ != nullptr) writer_->finish();
  }

  void poll(const recording_view& of) {
    const head& h = of.head();
    if (!has_rank(h)) return;
    if (writer_ == nullptr) {
      // When one rank is a member, all of this process have started to join: they are the world, or a part of
      // it.
      if (h.at() == phase::joining || failed_) return;
      std::set<int> ranks;
      for_each_recording([&ranks](recording_view other) {
        if (has_rank(other.head())) ranks.insert(other.head().world_rank());
      });
      const bool whole = static_cast<int>(ranks.size()) >= h.world_size();
      open(whole ? path_ : path_ + ".rank-" + std::to_string(h.world_rank()));
      if (writer_ == nullptr) return;
    }
    writer_->poll(h.world_rank(), of, "");
    writer_->flush();
  }
  void over(const recording_view& of) {
    poll(of);
    if (writer_ != nullptr) writer_->over(of.head().world_rank());
  }

 private:
  static bool has_rank(const head& h) noexcept { return h.is_written() && h.at() != phase::none; }
  void open(const std::string& path) {
    try {
      writer_ = std::make_unique<trace_writer>(path, trace_clock{}, most_bytes_);
    } catch (const std::exception& e) {
      failed_ = true;
      base::log_warning(std::string("TUTTI_TRACE: no trace is written: ") + e.what());
    }
  }
  void check_all() {
    for_each_recording([this](recording_view of) { poll(of); });
  }
  void work(const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any pause;
    while (!stop.stop_requested()) {
      check_all();
      pause.wait_for(lock, stop, between_trace_polls, [] { return false; });
    }
  }

  const std::string path_;
  const std::uint64_t most_bytes_ = most_trace_bytes();
  const pid_t process_ = ::getpid();
  bool failed_ = false;
  std::unique_ptr<trace_writer> writer_;
  std::jthread thread_;
};

}  // namespace

bool trace_this_process() {
  static const std::optional<std::string> path = base::env_string("TUTTI_TRACE");
  if (!path) return false;
  static process_trace trace(*path);
  instance = &trace;
  return true;
}

void write_last(const recording_view& of) noexcept {
  if (instance != nullptr) instance->over(of);
}

}  // namespace tutti::flight
