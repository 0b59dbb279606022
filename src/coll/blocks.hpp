// SPDX-License-Identifier: Apache-2.0
// blocks: the positions of all ranks' blocks in one buffer, in rank order without gaps; and copying bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::coll {

inline bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(a), second = reinterpret_cast<std::uintptr_t>(b);
  return first < second ? second - first < a_bytes : first - second < b_bytes;
}

inline void move_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (to != from && bytes > 0) std::memmove(to, from, bytes);
}

class blocks {
 public:
  // Blocks of `each` bytes.
  static blocks even(std::size_t each) noexcept {
    blocks b;
    b.each_ = each;
    return b;
  }
  // ends[i] is the end of block i in bytes. The array outlives this and its copies.
  static blocks uneven(const std::size_t* ends) noexcept {
    blocks b;
    b.ends_ = ends;
    return b;
  }
  // `count` elements in `parts` blocks of almost equal size: the first ones are one element longer.
  static blocks split(std::size_t count, int parts, std::size_t element_bytes) noexcept {
    blocks b;
    b.each_ = count / static_cast<std::size_t>(parts) * element_bytes;
    b.longer_ = count % static_cast<std::size_t>(parts);
    b.element_bytes_ = element_bytes;
    return b;
  }

  std::size_t begin(int i) const noexcept {
    const auto n = static_cast<std::size_t>(i);
    if (ends_ != nullptr) return i == 0 ? 0 : ends_[n - 1];
    return n * each_ + (n < longer_ ? n : longer_) * element_bytes_;
  }
  std::size_t bytes(int i) const noexcept { return begin(i + 1) - begin(i); }
  // The bytes of blocks first to last - 1.
  std::size_t bytes(int first, int last) const noexcept { return begin(last) - begin(first); }
  // The size of the longest of `n` blocks.
  std::size_t longest(int n) const noexcept {
    std::size_t most = 0;
    for (int i = 0; i < n; ++i) most = bytes(i) > most ? bytes(i) : most;
    return most;
  }

 private:
  std::size_t each_ = 0;
  std::size_t longer_ = 0;
  std::size_t element_bytes_ = 0;
  const std::size_t* ends_ = nullptr;
};

}  // namespace tutti::coll
