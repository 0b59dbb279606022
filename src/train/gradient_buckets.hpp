// SPDX-License-Identifier: Apache-2.0
// gradient_buckets: which gradients are averaged together, and which are complete.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tutti/detail/bucket.hpp>
#include <tutti/train/data_parallel.hpp>
#include <vector>

namespace tutti::train {

class gradient_buckets {
 public:
  // Makes buckets of one element type, from the last gradient to the first. Throws errc::invalid_argument.
  gradient_buckets(const communicator& c, detail::gradient_memory memory, const data_parallel_options& o);

  std::size_t size() const noexcept { return buckets_.size(); }
  std::size_t bytes() const noexcept { return bytes_; }
  detail::bucket& operator[](std::size_t i) noexcept { return *buckets_[i]; }
  // Marks gradient i complete; returns true if its bucket now is, too. Any thread may call it. Throws
  // errc::invalid_argument.
  bool mark(std::size_t i, const gpu::stream* after);
  void complete_all(const gpu::stream* after);
  void reset() noexcept;

 private:
  std::vector<std::unique_ptr<detail::bucket>> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::unique_ptr<std::atomic<bool>[]> marked_;
  std::size_t bytes_ = 0;
};

// Equal for equal buckets and collectives of a step. Throws errc::invalid_argument.
std::uint64_t layout_of(const std::vector<detail::registered_gradient>& gradients,
                        const data_parallel_options& o);

}  // namespace tutti::train
