// SPDX-License-Identifier: Apache-2.0
#include "common/pattern.hpp"

#include <algorithm>

namespace perf {
namespace {

constexpr std::uint64_t step = 0x9e3779b97f4a7c15;  // odd: words differ for 2^64 positions

std::uint64_t mixed(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t word_at(std::uint64_t seed, std::size_t index) noexcept { return mixed(seed) + index * step; }

std::byte byte_at(std::uint64_t seed, std::size_t index) noexcept {
  std::byte bytes[8];
  const std::uint64_t word = word_at(seed, index / 8);
  std::memcpy(bytes, &word, sizeof word);
  return bytes[index % 8];
}

}  // namespace

std::uint64_t seed_of_message(std::uint64_t batch_seed, int sender, int slot) noexcept {
  return batch_seed << 24 | static_cast<std::uint64_t>(sender) << 16 | static_cast<std::uint64_t>(slot);
}

void fill(std::span<std::byte> bytes, std::uint64_t seed) noexcept {
  const std::size_t words = bytes.size() / 8;
  std::uint64_t word = mixed(seed);
  for (std::size_t i = 0; i < words; ++i, word += step) std::memcpy(bytes.data() + i * 8, &word, sizeof word);
  for (std::size_t i = words * 8; i < bytes.size(); ++i) bytes[i] = byte_at(seed, i);
}

bool is_filled(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
  const std::size_t words = bytes.size() / 8;
  std::uint64_t word = mixed(seed), difference = 0;
  for (std::size_t i = 0; i < words; ++i, word += step) {
    std::uint64_t seen;
    std::memcpy(&seen, bytes.data() + i * 8, sizeof seen);
    difference |= seen ^ word;
  }
  bool good = difference == 0;
  for (std::size_t i = words * 8; i < bytes.size(); ++i) good = good && bytes[i] == byte_at(seed, i);
  return good;
}

void scrub(std::span<std::byte> bytes) noexcept {
  if (!bytes.empty()) std::memset(bytes.data(), 0x5a, bytes.size());
}

tail_check::tail_check(std::size_t bytes, std::uint64_t seed) noexcept
    : bytes_(std::min<std::size_t>(bytes, 8)) {
  std::byte tail[8]{};
  for (std::size_t i = 0; i < bytes_; ++i) tail[i] = byte_at(seed, bytes - bytes_ + i);
  std::memcpy(&expected_, tail, sizeof expected_);
}

void fill_addends(std::span<float> values, std::uint64_t seed, int rank) noexcept {
  const auto shift = static_cast<std::uint32_t>(seed);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>((static_cast<std::uint32_t>(i) + shift) & 255u) + rank);
}

float expected_sum(std::size_t index, std::uint64_t seed, int ranks) noexcept {
  const auto common =
      static_cast<int>((static_cast<std::uint32_t>(index) + static_cast<std::uint32_t>(seed)) & 255u);
  return static_cast<float>(ranks * common + ranks * (ranks - 1) / 2);
}

bool is_sum(std::span<const float> values, std::uint64_t seed, int ranks) noexcept {
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) wrong |= values[i] != expected_sum(i, seed, ranks) ? 1 : 0;
  return wrong == 0;
}

}  // namespace perf
