// SPDX-License-Identifier: Apache-2.0
// Verifiable buffer contents: a function of a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace perf {

// Derives a seed from the batch's, the sender and the slot of a window, so that all messages of a batch
// differ.
std::uint64_t seed_of_message(std::uint64_t batch_seed, int sender, int slot) noexcept;

void fill(std::span<std::byte> bytes, std::uint64_t seed) noexcept;
// Whether every byte is as fill() wrote it.
bool is_filled(std::span<const std::byte> bytes, std::uint64_t seed) noexcept;
// Overwrites `bytes` with contents that fill() never writes, so that a missing message is found.
void scrub(std::span<std::byte> bytes) noexcept;

// Stores the first byte of every cache line again, as a program does that computes its next message: other cores
// lose their copies of the lines. A volatile access, so that it is done.
inline void rewrite(std::span<std::byte> bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size(); at += 64) {
    volatile std::byte& first = bytes[at];
    first = static_cast<std::byte>(first);
  }
}

// The last bytes of a message (up to 8): cheap enough to be checked inside the timed part.
class tail_check {
 public:
  tail_check() noexcept = default;
  // For a message of `bytes` bytes filled with `seed`.
  tail_check(std::size_t bytes, std::uint64_t seed) noexcept;

  bool holds(std::span<const std::byte> message) const noexcept {
    if (bytes_ == sizeof expected_) {
      std::uint64_t seen;
      std::memcpy(&seen, message.data() + message.size() - sizeof seen, sizeof seen);
      return seen == expected_;
    }
    return bytes_ == 0 || std::memcmp(message.data(), &expected_, bytes_) == 0;
  }

 private:
  std::uint64_t expected_ = 0;
  std::size_t bytes_ = 0;
};

// Input vectors for sums: small whole numbers, so that the sum is exact in any order.
void fill_addends(std::span<float> values, std::uint64_t seed, int rank) noexcept;
float expected_sum(std::size_t index, std::uint64_t seed, int ranks) noexcept;
bool is_sum(std::span<const float> values, std::uint64_t seed, int ranks) noexcept;

}  // namespace perf
