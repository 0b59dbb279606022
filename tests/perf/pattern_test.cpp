// SPDX-License-Identifier: Apache-2.0
#include "common/pattern.hpp"

#include <doctest/doctest.h>
#include <cstddef>
#include <cstring>
#include <set>
#include <vector>

using bytes = std::vector<std::byte>;

TEST_CASE("filled contents match, and every single wrong byte is detected") {
  for (const std::size_t size : {0u, 1u, 7u, 8u, 9u, 64u, 100u}) {
    CAPTURE(size);
    bytes message(size);
    perf::fill(message, 42);
    CHECK(perf::is_filled(message, 42));
    for (std::size_t i = 0; i < size; ++i) {
      message[i] ^= std::byte{1};
      CHECK_FALSE(perf::is_filled(message, 42));
      message[i] ^= std::byte{1};
    }
  }
}

TEST_CASE("another seed, a scrubbed buffer and a shifted message do not match") {
  bytes message(64);
  perf::fill(message, 1);
  CHECK_FALSE(perf::is_filled(message, 2));
  std::memmove(message.data(), message.data() + 8, 56);
  CHECK_FALSE(perf::is_filled(message, 1));
  perf::scrub(message);
  CHECK_FALSE(perf::is_filled(message, 1));
}

TEST_CASE("messages of one batch have different seeds") {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t batch = 0; batch < 10; ++batch)
    for (int sender = 0; sender < 2; ++sender)
      for (int slot = 0; slot < 64; ++slot) seeds.insert(perf::seed_of_message(batch, sender, slot));
  CHECK(seeds.size() == 10 * 2 * 64);
}

TEST_CASE("the end of a message is checked for every length") {
  for (std::size_t size = 0; size <= 40; ++size) {
    CAPTURE(size);
    bytes message(size);
    perf::fill(message, 7);
    const perf::tail_check tail(size, 7);
    CHECK(tail.holds(message));
    if (size == 0) continue;
    message[size - 1] ^= std::byte{0x80};
    CHECK_FALSE(tail.holds(message));
  }
}

TEST_CASE("the expected sum is the sum of the input vectors") {
  constexpr std::size_t count = 600;
  for (const int ranks : {2, 3, 7}) {
    std::vector<float> sum(count, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<float> own(count);
      perf::fill_addends(own, 99, rank);
      for (std::size_t i = 0; i < count; ++i) sum[i] += own[i];
    }
    CHECK(perf::is_sum(sum, 99, ranks));
    CHECK_FALSE(perf::is_sum(sum, 98, ranks));
    sum[count - 1] += 1;
    CHECK_FALSE(perf::is_sum(sum, 99, ranks));
  }
}
