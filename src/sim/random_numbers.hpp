// SPDX-License-Identifier: Apache-2.0
// Random numbers drawn from a seed, the same everywhere, and a hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tutti::sim {

constexpr std::uint64_t scrambled(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

class random_numbers {  // splitmix64
 public:
  explicit random_numbers(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept { return scrambled(state_ += 0x9e3779b97f4a7c15ULL); }
  // A number below `end`; 0 if `end` is 0.
  std::uint64_t below(std::uint64_t end) noexcept { return end == 0 ? 0 : next() % end; }
  std::int64_t up_to(std::int64_t most) noexcept {
    return most <= 0 ? 0 : static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most) + 1));
  }
  double share() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // Draws nothing if the probability is 0.
  bool happens(double probability) noexcept { return probability > 0 && share() < probability; }

 private:
  std::uint64_t state_;
};

class event_hash {
 public:
  void add(std::uint64_t word) noexcept { state_ = scrambled(state_ ^ (word + 0x9e3779b97f4a7c15ULL)); }
  void add(std::span<const std::byte> bytes) noexcept {
    add(bytes.size());
    for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t))) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), sizeof word);
      state_ = (state_ ^ word) * 0x9fb21c651e98df25ULL;
      state_ ^= state_ >> 32;
    }
    for (const std::byte b : bytes) state_ = (state_ ^ static_cast<std::uint64_t>(b)) * 0x100000001b3ULL;
  }
  std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace tutti::sim
