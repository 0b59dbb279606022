// SPDX-License-Identifier: Apache-2.0
// From those who say something to the thread that writes it: bounded memory, nobody waits.
#pragma once

#include "track/record.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace tutti::track {

class record_queue {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  record_queue(std::size_t bound_bytes, track::when_full full) : bound_bytes_(bound_bytes), full_(full) {}

  // Takes it, or counts what it dropped for it. After close(): neither. From any thread; the lock is held for
  // moments.
  void push(record r);
  void count_dropped() noexcept;  // one that could not even be made

  // One thread takes. Sleeps until something is there, the queue is closed, or `until`; then for `linger`
  // more, so that much is written at once, unless there is much already.
  void wait(time_point until, std::chrono::milliseconds linger);
  // Some of the oldest, about `most_bytes`, at most half of all; they count as queued until release(). Empty:
  // there is nothing.
  std::vector<record> take(std::size_t most_bytes);
  void release() noexcept;

  // Nothing is taken any more; what is in it can still be had.
  void close() noexcept;
  bool closed() const;
  bool empty() const;
  std::size_t bytes() const;  // with what was taken last
  bool has_room() const { return 2 * bytes() <= bound_bytes_; }
  std::uint64_t dropped() const;

 private:
  bool much_is_queued() const noexcept {
    return queued_bytes_ >= much_bytes || 4 * queued_bytes_ >= bound_bytes_;
  }
  static constexpr std::size_t much_bytes = std::size_t{1} << 20;

  mutable std::mutex mutex_;
  std::condition_variable something_;
  std::deque<record> records_;
  const std::size_t bound_bytes_;
  const track::when_full full_;
  std::size_t queued_bytes_ = 0;
  std::size_t taken_bytes_ = 0;
  std::uint64_t dropped_ = 0;
  bool closed_ = false;
  bool sleeps_ = false;   // until something is there
  bool lingers_ = false;  // until there is much
};

}  // namespace tutti::track
