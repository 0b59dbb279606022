// SPDX-License-Identifier: Apache-2.0
// record: one measurement, text or file of a rank, on its way to the disk. record_queue: from threads that make
// records to the thread that writes them: bounded memory, no thread waits.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <tutti/track.hpp>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::track {

struct image_record {
  int width = 0, height = 0, channels = 0;
  std::vector<std::uint8_t> samples;
};

struct record {
  std::string name;
  std::int64_t step = 0;
  double wall_time = 0;  // seconds since 1970
  // A number, a text, the values of a histogram, an image, hyperparameters, or an artifact: its bytes, or the
  // file to copy.
  std::variant<double, std::string, std::vector<double>, image_record, track::hyperparameter_map,
               std::vector<std::byte>, std::filesystem::path>
      said = 0.0;
};

// Its share of the queue's memory.
inline std::size_t bytes_of(const record& r) noexcept {
  struct size_of {
    std::size_t operator()(double) const noexcept { return 0; }
    std::size_t operator()(const image_record& i) const noexcept { return i.samples.size(); }
    std::size_t operator()(const track::hyperparameter_map& values) const noexcept {
      std::size_t n = 0;
      for (const auto& [name, v] : values) {
        const auto* const words = std::get_if<std::string>(&v.held());
        n += sizeof(std::pair<std::string, track::value>) + 4 * sizeof(void*) + name.size() +
             (words != nullptr ? words->size() : 0);
      }
      return n;
    }
    std::size_t operator()(const std::filesystem::path& file) const noexcept { return file.native().size(); }
    std::size_t operator()(const std::string& text) const noexcept { return text.size(); }
    std::size_t operator()(const std::vector<double>& values) const noexcept { return 8 * values.size(); }
    std::size_t operator()(const std::vector<std::byte>& bytes) const noexcept { return bytes.size(); }
  };
  return sizeof(record) + (r.name.size() > 15 ? r.name.size() : 0) + std::visit(size_of(), r.said);
}

class record_queue {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  record_queue(std::size_t bound_bytes, track::when_full full) : bound_bytes_(bound_bytes), full_(full) {}

  // Takes a record, or counts what it dropped for it; after close() neither. Any thread may call it; the lock
  // is held for moments.
  void push(record r) {
    const std::size_t size = bytes_of(r);
    bool wake = false;
    std::deque<record> gone;  // destroyed without the lock
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      if (full_ == when_full::drop_oldest && taken_bytes_ + size <= bound_bytes_) {
        while (!records_.empty() && queued_bytes_ + taken_bytes_ + size > bound_bytes_) {
          queued_bytes_ -= bytes_of(records_.front());
          gone.push_back(std::move(records_.front()));
          records_.pop_front();
          ++dropped_;
        }
      }
      if (queued_bytes_ + taken_bytes_ + size > bound_bytes_) {
        ++dropped_;
        return;
      }
      records_.push_back(std::move(r));
      queued_bytes_ += size;
      wake = records_.size() == 1 || much_is_queued();  // what wait() waits for
    }
    if (wake) something_.notify_one();
  }
  // A record that could not even be made.
  void count_dropped() noexcept {
    const std::lock_guard lock(mutex_);
    if (!closed_) ++dropped_;
  }

  // For the one thread that takes. Sleeps until there is a record, the queue is closed, or `until`. Then it
  // waits for `linger` more, so that much is written at once, unless there is much already.
  void wait(time_point until, std::chrono::milliseconds linger) {
    std::unique_lock lock(mutex_);
    if (!something_.wait_until(lock, until, [this] { return closed_ || !records_.empty(); })) return;
    something_.wait_until(lock, std::chrono::steady_clock::now() + linger,
                          [this] { return closed_ || much_is_queued(); });
  }
  // Takes some of the oldest, about `most_bytes`, at most half of all; they count as queued until release().
  // Empty: there are none.
  std::vector<record> take(std::size_t most_bytes) {
    std::vector<record> some;
    const std::lock_guard lock(mutex_);
    // The other half is for records made meanwhile.
    most_bytes = std::min(most_bytes, bound_bytes_ / 2);
    taken_bytes_ = 0;
    while (!records_.empty() && taken_bytes_ < most_bytes) {
      const std::size_t size = bytes_of(records_.front());
      some.push_back(std::move(records_.front()));
      records_.pop_front();
      queued_bytes_ -= size;
      taken_bytes_ += size;
    }
    return some;
  }
  void release() noexcept {
    const std::lock_guard lock(mutex_);
    taken_bytes_ = 0;
  }

  // Takes no more records; those in the queue can still be taken.
  void close() noexcept {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    something_.notify_all();
  }
  // Closed, and all records are taken.
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return closed_ && records_.empty();
  }
  // Including those taken last.
  std::size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return queued_bytes_ + taken_bytes_;
  }
  bool has_room() const { return 2 * bytes() <= bound_bytes_; }
  std::uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

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
};

}  // namespace tutti::track
