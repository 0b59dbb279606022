// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.hpp"

#include <doctest/doctest.h>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <vector>

TEST_CASE("CRC-32C of the check string, by instruction and by table") {
  const std::string_view text = "123456789";
  std::vector<std::uint8_t> bytes(text.begin(), text.end());
  CHECK(tutti::base::crc32c(bytes) == 0xE3069283U);
  CHECK(tutti::base::crc32c_by_table(bytes) == 0xE3069283U);
  std::mt19937 random(1);
  for (std::size_t size = 0; size < 100; ++size) {
    bytes.resize(size);
    for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
    CHECK(tutti::base::crc32c(bytes) == tutti::base::crc32c_by_table(bytes));
    const std::span<const std::uint8_t> all(bytes);
    const std::size_t cut = size / 3;
    const std::uint32_t front = tutti::base::crc32c(all.first(cut));
    CHECK(tutti::base::crc32c(all.subspan(cut), front) == tutti::base::crc32c(bytes));
    CHECK(tutti::base::crc32c_by_table(all.subspan(cut), front) == tutti::base::crc32c(bytes));
  }
}
