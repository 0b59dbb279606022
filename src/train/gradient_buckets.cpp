// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_buckets.hpp"

#include <fmt/format.h>

#include <span>
#include <tutti/error.hpp>
#include <tutti/train/replicas.hpp>
#include <utility>

namespace tutti {

detail::bucket::bucket(std::vector<registered_gradient> gradients)
    : gradients_(std::move(gradients)), all_(gradients_.front().values), missing_(gradients_.size()) {
  for (std::size_t i = 1; i < gradients_.size(); ++i) {
    const buffer_view& next = gradients_[i].values;
    in_place_ = in_place_ && next.data == static_cast<std::byte*>(all_.data) + all_.bytes();
    all_.count += next.count;
  }
}

bool detail::bucket::count(const gpu::stream* after) {
  follow(after);
  // Releases what this gradient's thread has written; the last acquires what all others have.
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  try {
    pack();
  } catch (...) {
    failure_ = std::current_exception();
  }
  complete_.store(true, std::memory_order_release);
  return true;
}

std::vector<gradient_view> detail::bucket::views_at(float* data) const {
  std::vector<gradient_view> views;
  for (const auto& [values, rows, keep] : gradients_) {
    views.emplace_back(std::span(data, values.count), rows);
    data += values.count;
  }
  return views;
}

void detail::bucket::reset() noexcept {
  complete_.store(false, std::memory_order_relaxed);
  missing_.store(gradients_.size(), std::memory_order_relaxed);
}

namespace train {

gradient_buckets::gradient_buckets(const communicator& c, detail::gradient_memory memory,
                                   const data_parallel_options& o)
    : bucket_of_(memory.gradients.size()),
      marked_(std::make_unique<std::atomic<bool>[]>(memory.gradients.size())) {
  const std::vector<detail::registered_gradient>& all = memory.gradients;
  std::size_t end = all.size();
  while (end > 0) {
    const std::size_t limit = buckets_.empty() ? o.first_bucket_bytes : o.bucket_bytes;
    std::size_t begin = end, size = 0;
    while (begin > 0 &&
           (begin == end || (size < limit && all[begin - 1].values.type == all[begin].values.type)))
      size += all[--begin].values.bytes();
    // In the order of registration: gradients that are adjacent in memory are reduced in place.
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
    for (std::size_t i = begin; i < end; ++i) bucket_of_[i] = buckets_.size();
    buckets_.push_back(memory.make(c, {from, from + static_cast<std::ptrdiff_t>(end - begin)}, o.hook));
    bytes_ += size;
    end = begin;
  }
}

bool gradient_buckets::mark(std::size_t i, const gpu::stream* after) {
  if (i >= bucket_of_.size())
    throw error(
        errc::invalid_argument,
        fmt::format("data_parallel: gradient {} is ready, but {} are registered", i, bucket_of_.size()));
  detail::bucket& b = *buckets_[bucket_of_[i]];
  b.check(after);
  if (marked_[i].exchange(true, std::memory_order_acq_rel))
    throw error(
        errc::invalid_argument,
        fmt::format("data_parallel: gradient {} was ready already in this step: await reduced() before "
                    "the next, or keep no_sync() while several add up",
                    i));
  return b.count(after);
}

void gradient_buckets::complete_all(const gpu::stream* after) {
  for (std::size_t i = 0; i < bucket_of_.size(); ++i)
    if (!marked_[i].exchange(true, std::memory_order_acq_rel)) buckets_[bucket_of_[i]]->count(after);
}

void gradient_buckets::reset() noexcept {
  for (const auto& b : buckets_) b->reset();
  for (std::size_t i = 0; i < bucket_of_.size(); ++i) marked_[i].store(false, std::memory_order_relaxed);
}

std::uint64_t layout_of(const std::vector<detail::registered_gradient>& gradients,
                        const data_parallel_options& o) {
  if (gradients.empty()) throw error(errc::invalid_argument, "data_parallel: no gradients are registered");
  const bool on_host = std::dynamic_pointer_cast<gradient_hook>(o.hook) != nullptr;
  std::vector<std::uint64_t> numbers{
      o.first_bucket_bytes, o.bucket_bytes, o.hook != nullptr, on_host, o.sum, o.uneven};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto& [values, rows, keep] = gradients[i];
    if (values.count == 0 || rows == 0 || values.count % rows != 0)
      throw error(
          errc::invalid_argument,
          fmt::format("data_parallel: gradient {} has {} elements and {} rows", i, values.count, rows));
    numbers.insert(numbers.end(), {values.count, rows, static_cast<std::uint64_t>(values.type)});
  }
  return hash_of(std::as_bytes(std::span(numbers)));
}

}  // namespace train
}  // namespace tutti
