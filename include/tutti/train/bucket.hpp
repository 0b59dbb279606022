// SPDX-License-Identifier: Apache-2.0
// bucket: gradients that data_parallel averages together, in one kind of memory. A library with memory of its own derives
// a bucket, and makes a gradient_memory for data_parallel::create().
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/extend/executor_part.hpp>
#include <tutti/task.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

namespace tutti {

class communicator;
struct gradient_view;

namespace bucketing {

// Base of the gradient hooks for any kind of memory.
class any_gradient_hook {
 public:
  virtual ~any_gradient_hook() = default;
};

// The gradient of one parameter: a matrix of `rows` rows, or a vector (one row).
struct registered_gradient {
  extend::buffer_view values;
  std::size_t rows = 1;
  std::shared_ptr<const void> keep;  // owner of the memory; null: the program keeps it
};

// Streams are null for host memory. On a device, functions enqueue in a stream, and so do tasks before they complete.
class bucket {
 public:
  explicit bucket(std::vector<registered_gradient> gradients);
  bucket(const bucket&) = delete;
  bucket& operator=(const bucket&) = delete;
  virtual ~bucket() = default;

  // Throws errc::invalid_argument if gradients in this memory cannot follow the work in `s`.
  virtual void check(const extend::stream* s) const = 0;
  // Counts one more complete gradient, computed by the work in `after`. The last one packs the bucket; then
  // this returns true. Any thread may call it, on a device only the loop thread.
  bool count(const extend::stream* after);
  bool is_complete() const noexcept { return complete_.load(std::memory_order_acquire); }
  // Rethrows what ended pack().
  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  void reset() noexcept;

  // Replaces the packed gradients by their average (or sum) over the ranks of `c`.
  virtual task<> all_reduce(communicator c, bool sum) = 0;
  // Does the same by the hook of data_parallel_options. `index` is the number of the bucket.
  virtual task<> apply_hook(communicator c, std::size_t index) = 0;
  // A factor of 0 sets the bucket to zero, also where it is not finite.
  virtual task<> multiply(double factor) = 0;
  // Copies the results to the gradients. Work enqueued on `on` from then on follows them.
  virtual void unpack(const extend::stream* on) = 0;
  // Sets the gradients to zero, in the order of `on`.
  virtual void clear(const extend::stream* on) = 0;

 protected:
  virtual void follow(const extend::stream*) {}
  // Copies the gradients into the bucket, one behind the other.
  virtual void pack() = 0;

  // The gradients of a bucket of floats, packed at `data`.
  std::vector<gradient_view> views_at(float* data) const;

  const std::vector<registered_gradient> gradients_;
  bool in_place_ = true;     // the gradients are adjacent in memory: nothing is copied
  extend::buffer_view all_;  // of all gradients; the deriving class sets `data` if they are not in place

 private:
  std::atomic<std::size_t> missing_;
  std::atomic<bool> complete_{false};  // and packed
  std::exception_ptr failure_;
};

// Gradients in one kind of memory, and what makes their buckets.
struct gradient_memory {
  std::vector<registered_gradient> gradients;
  std::unique_ptr<bucket> (*make)(const communicator& c, std::vector<registered_gradient> gradients,
                                  const std::shared_ptr<any_gradient_hook>& hook);
  // Buckets with weights or a hook, which may wait before their collectives, share a communicator.
  bool takes_turns = false;
};

}  // namespace bucketing
}  // namespace tutti
