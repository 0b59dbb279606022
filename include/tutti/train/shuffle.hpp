// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same with every compiler and standard library. std::shuffle and the
// distributions of <random> are not; ranks that disagree about an order train on the wrong samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti {

// A generator of random bits: SplitMix64 (Steele, Lea, Flood 2014).
class random_bits {
 public:
  explicit random_bits(std::uint64_t seed) noexcept : state_(seed) {}

  // The next 64 random bits.
  std::uint64_t next() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // A number from 0 to below 1.
  double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // A number from 0 to below `end` > 0. The bias of the remainder is below 2^-32 for the sizes used here.
  std::uint64_t below(std::uint64_t end) noexcept { return next() % end; }

 private:
  std::uint64_t state_;
};

// Shuffles the items by the algorithm of Fisher and Yates.
template <class T>
void shuffle(std::span<T> items, random_bits& bits) noexcept {
  for (std::size_t i = items.size(); i > 1; --i) {
    const std::size_t j = bits.below(i);
    std::swap(items[i - 1], items[j]);
  }
}

}  // namespace tutti
