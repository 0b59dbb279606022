// SPDX-License-Identifier: Apache-2.0
// gradient_buckets: which gradients are averaged together, and which are complete.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <tutti/shared_memory.hpp>
#include <tutti/train/gradient_hooks.hpp>
#include <vector>

namespace tutti::train {

class bucket {
 public:
  explicit bucket(std::vector<gradient_view> gradients);
  bucket(const bucket&) = delete;
  bucket& operator=(const bucket&) = delete;

  std::span<float> data() const noexcept { return data_; }
  gradient_bucket view(std::size_t index) const noexcept;
  bool is_in_place() const noexcept { return packed_.empty(); }

  // Counts one more complete gradient; returns true for the last. Any thread may call it.
  bool count() noexcept;
  bool is_complete() const noexcept { return complete_.load(std::memory_order_acquire); }
  // Packs from the gradients' own memory, on the thread that completes the bucket; and back, times `factor`.
  void pack() noexcept;
  void unpack(float factor) noexcept;
  void multiply(float factor) noexcept;
  void clear() noexcept;
  void reset() noexcept;

 private:
  const std::vector<gradient_view> gradients_;  // the program's
  shared_vector<float> packed_;                 // other ranks of this host read it in place
  std::span<float> data_;
  std::vector<gradient_view> parts_;  // of data_
  std::atomic<std::size_t> missing_;
  std::atomic<bool> complete_{false};  // and packed
};

class gradient_buckets {
 public:
  // Makes buckets from the last gradient to the first. Throws errc::invalid_argument.
  gradient_buckets(std::vector<gradient_view> gradients, std::size_t first_bytes, std::size_t bytes);

  std::size_t size() const noexcept { return buckets_.size(); }
  std::size_t bytes() const noexcept { return bytes_; }
  bucket& operator[](std::size_t i) noexcept { return buckets_[i]; }
  // Marks gradient i complete; returns true if its bucket now is, too. Any thread may call it. Throws
  // errc::invalid_argument.
  bool mark(std::size_t i);
  void complete_all();
  void clear() noexcept;
  void reset() noexcept;

 private:
  std::deque<bucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::unique_ptr<std::atomic<bool>[]> marked_;
  std::size_t bytes_ = 0;
};

// Equal for equal buckets. Throws errc::invalid_argument.
std::uint64_t layout_of(std::span<const gradient_view> gradients, std::size_t first_bytes, std::size_t bytes);

}  // namespace tutti::train
