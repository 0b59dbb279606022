// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_buckets.hpp"

#include <algorithm>
#include <string>
#include <tutti/error.hpp>
#include <tutti/train/replicas.hpp>

namespace tutti::train {
namespace {

bool lie_together(const std::vector<gradient_view>& all) {
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].values.data() != all[i - 1].values.data() + all[i - 1].values.size()) return false;
  return true;
}

}  // namespace

bucket::bucket(std::vector<gradient_view> gradients)
    : gradients_(std::move(gradients)), missing_(gradients_.size()) {
  std::size_t total = 0;
  for (const gradient_view& g : gradients_) total += g.values.size();
  if (lie_together(gradients_)) {
    data_ = std::span(gradients_.front().values.data(), total);
  } else {
    packed_.resize(total);
    data_ = packed_;
  }
  std::size_t at = 0;
  for (const gradient_view& g : gradients_) {
    parts_.emplace_back(data_.subspan(at, g.values.size()), g.rows);
    at += g.values.size();
  }
}

gradient_bucket bucket::view(std::size_t index) const noexcept {
  gradient_bucket b;
  b.index = index;
  b.data = data_;
  b.gradients = parts_;
  return b;
}

bool bucket::count() noexcept {
  // Releases what this gradient's thread has written; the last acquires what all others have.
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  pack();
  complete_.store(true, std::memory_order_release);
  return true;
}

void bucket::pack() noexcept {
  if (is_in_place()) return;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    std::ranges::copy(gradients_[i].values, parts_[i].values.begin());
}

void bucket::unpack(float factor) noexcept {
  if (factor != 1) multiply(factor);
  if (is_in_place()) return;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    std::ranges::copy(parts_[i].values, gradients_[i].values.begin());
}

void bucket::multiply(float factor) noexcept {
  for (float& x : data_) x *= factor;
}

void bucket::clear() noexcept {
  for (const gradient_view& g : gradients_) std::ranges::fill(g.values, 0.0F);
}

void bucket::reset() noexcept {
  complete_.store(false, std::memory_order_relaxed);
  missing_.store(gradients_.size(), std::memory_order_relaxed);
}

gradient_buckets::gradient_buckets(std::vector<gradient_view> gradients, std::size_t first_bytes,
                                   std::size_t bytes)
    : bucket_of_(gradients.size()), marked_(std::make_unique<std::atomic<bool>[]>(gradients.size())) {
  std::size_t end = gradients.size();
  while (end > 0) {
    const std::size_t limit = buckets_.empty() ? first_bytes : bytes;
    std::size_t begin = end, size = 0;
    while (begin > 0 && (begin == end || size < limit)) size += gradients[--begin].values.size_bytes();
    // In the order of registration: gradients that are adjacent in memory are reduced in place.
    buckets_.emplace_back(std::vector<gradient_view>(gradients.begin() + static_cast<std::ptrdiff_t>(begin),
                                                     gradients.begin() + static_cast<std::ptrdiff_t>(end)));
    for (std::size_t i = begin; i < end; ++i) bucket_of_[i] = buckets_.size() - 1;
    bytes_ += size;
    end = begin;
  }
}

bool gradient_buckets::mark(std::size_t i) {
  if (i >= bucket_of_.size())
    throw error(errc::invalid_argument, "data_parallel: gradient " + std::to_string(i) + " is ready, but " +
                                            std::to_string(bucket_of_.size()) + " are registered");
  if (marked_[i].exchange(true, std::memory_order_acq_rel))
    throw error(errc::invalid_argument, "data_parallel: gradient " + std::to_string(i) +
                                            " was ready already in this step: await reduced() before the "
                                            "next, or keep no_sync() while several add up");
  return buckets_[bucket_of_[i]].count();
}

void gradient_buckets::complete_all() {
  for (std::size_t i = 0; i < bucket_of_.size(); ++i)
    if (!marked_[i].exchange(true, std::memory_order_acq_rel)) buckets_[bucket_of_[i]].count();
}

void gradient_buckets::clear() noexcept {
  for (bucket& b : buckets_) b.clear();
}

void gradient_buckets::reset() noexcept {
  for (bucket& b : buckets_) b.reset();
  for (std::size_t i = 0; i < bucket_of_.size(); ++i) marked_[i].store(false, std::memory_order_relaxed);
}

std::uint64_t layout_of(std::span<const gradient_view> gradients, std::size_t first_bytes,
                        std::size_t bytes) {
  if (gradients.empty()) throw error(errc::invalid_argument, "data_parallel: no gradients are registered");
  std::vector<std::uint64_t> numbers{first_bytes, bytes};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const gradient_view& g = gradients[i];
    if (g.values.empty() || g.rows == 0 || g.values.size() % g.rows != 0)
      throw error(errc::invalid_argument, "data_parallel: gradient " + std::to_string(i) + " has " +
                                              std::to_string(g.values.size()) + " elements and " +
                                              std::to_string(g.rows) + " rows");
    numbers.push_back(g.values.size());
    numbers.push_back(g.rows);
  }
  return hash_of(std::as_bytes(std::span(numbers)));
}

}  // namespace tutti::train
