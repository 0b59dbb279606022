// SPDX-License-Identifier: Apache-2.0
// Contents that can be checked: every buffer is a function of a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace perf {

// One seed out of the batch's, for the sender and the place in a window: no two messages of a batch look
// alike.
std::uint64_t seed_of_message(std::uint64_t batch_seed, int sender, int slot) noexcept;

void fill(std::span<std::byte> bytes, std::uint64_t seed) noexcept;
// Whether every byte is as fill() left it.
bool is_filled(std::span<const std::byte> bytes, std::uint64_t seed) noexcept;
// Nothing that fill() makes of the seeds of one program: a message that did not come is found.
void scrub(std::span<std::byte> bytes) noexcept;

// The end of a message (up to 8 bytes): cheap enough to be looked at inside the timed part.
class tail_check {
 public:
  tail_check() noexcept = default;
  // Of a message of `bytes` bytes filled with `seed`.
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

// Vectors to be added: small whole numbers, so that the sum is exact in whatever order it is made.
void fill_addends(std::span<float> values, std::uint64_t seed, int rank) noexcept;
float expected_sum(std::size_t index, std::uint64_t seed, int ranks) noexcept;
bool is_sum(std::span<const float> values, std::uint64_t seed, int ranks) noexcept;

}  // namespace perf
