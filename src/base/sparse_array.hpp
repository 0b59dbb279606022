// SPDX-License-Identifier: Apache-2.0
// sparse_array: an array by rank of which a large world uses few elements. Up to `most_flat` elements are one block of
// memory; of more, those are made, in pages, that are written to. Elements never move.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace tutti::base {

template <class T>
class sparse_array {
 public:
  static constexpr std::size_t most_flat = 256;

  explicit sparse_array(std::size_t size = 0) { resize(size); }
  // Elements that were made are lost.
  void resize(std::size_t size) {
    const bool flat = size <= most_flat;
    flat_ = flat ? std::make_unique<T[]>(size) : nullptr;
    pages_ = std::vector<std::unique_ptr<T[]>>(flat ? 0 : (size + page - 1) / page);
    size_ = size;
  }

  std::size_t size() const noexcept { return size_; }
  // Makes the element if need be.
  T& operator[](std::size_t index) {
    if (flat_ != nullptr) [[likely]]
      return flat_[index];
    return in_page(index);
  }
  // Null: nothing has been written to it or its neighbours.
  T* find(std::size_t index) const noexcept {
    if (flat_ != nullptr) [[likely]]
      return &flat_[index];
    const std::unique_ptr<T[]>& at = pages_[index / page];
    return at != nullptr ? &at[index % page] : nullptr;
  }
  // Calls f(index, element) for each one that is made, in order.
  template <class F>
  void for_each(F f) const {
    const std::size_t step = flat_ != nullptr ? std::max<std::size_t>(size_, 1) : page;
    for (std::size_t first = 0; first < size_; first += step) {
      T* const at = find(first);
      for (std::size_t i = first; at != nullptr && i < std::min(first + step, size_); ++i)
        f(i, at[i - first]);
    }
  }

 private:
  static constexpr std::size_t page = 16;

  [[gnu::noinline]] T& in_page(std::size_t index) {
    std::unique_ptr<T[]>& at = pages_[index / page];
    if (at == nullptr) at = std::make_unique<T[]>(page);
    return at[index % page];
  }

  std::unique_ptr<T[]> flat_;
  std::vector<std::unique_ptr<T[]>> pages_;
  std::size_t size_ = 0;
};

}  // namespace tutti::base
