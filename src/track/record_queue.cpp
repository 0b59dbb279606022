// SPDX-License-Identifier: Apache-2.0
#include "track/record_queue.hpp"

#include <algorithm>
#include <utility>

namespace tutti::track {

void record_queue::push(record r) {
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

void record_queue::count_dropped() noexcept {
  const std::lock_guard lock(mutex_);
  if (!closed_) ++dropped_;
}

void record_queue::wait(time_point until, std::chrono::milliseconds linger) {
  std::unique_lock lock(mutex_);
  if (!something_.wait_until(lock, until, [this] { return closed_ || !records_.empty(); })) return;
  something_.wait_until(lock, std::chrono::steady_clock::now() + linger,
                        [this] { return closed_ || much_is_queued(); });
}

std::vector<record> record_queue::take(std::size_t most_bytes) {
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

void record_queue::release() noexcept {
  const std::lock_guard lock(mutex_);
  taken_bytes_ = 0;
}

void record_queue::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  something_.notify_all();
}

bool record_queue::ended() const {
  const std::lock_guard lock(mutex_);
  return closed_ && records_.empty();
}
std::size_t record_queue::bytes() const {
  const std::lock_guard lock(mutex_);
  return queued_bytes_ + taken_bytes_;
}
std::uint64_t record_queue::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace tutti::track
