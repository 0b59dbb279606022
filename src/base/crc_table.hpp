// SPDX-License-Identifier: Apache-2.0
// The table of a reflected 32-bit CRC, and the CRC by it. Initial value and final inversion are all ones, as
// usual.
#pragma once

#include <array>
#include <cstdint>

namespace tutti::base {

using crc_table = std::array<std::uint32_t, 256>;

// `polynomial` is bit-reversed.
consteval crc_table crc_table_of(std::uint32_t polynomial) {
  crc_table table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t remainder = i;
    for (int bit = 0; bit < 8; ++bit)
      remainder = (remainder >> 1) ^ ((remainder & 1U) != 0 ? polynomial : 0U);
    table[i] = remainder;
  }
  return table;
}

template <class Bytes>
std::uint32_t crc_of(const crc_table& table, const Bytes& bytes, std::uint32_t before = 0) noexcept {
  std::uint32_t crc = ~before;
  for (const auto b : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<std::uint8_t>(b)) & 0xFFU];
  return ~crc;
}

}  // namespace tutti::base
