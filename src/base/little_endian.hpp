// SPDX-License-Identifier: Apache-2.0
// Integers as bytes, least significant first on every machine: their form on every wire.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>

namespace tutti::base {

template <std::integral T>
void put_little_endian(std::uint8_t* at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
  if constexpr (std::endian::native == std::endian::big) std::reverse(at, at + sizeof value);
}

template <std::integral T>
T get_little_endian(const std::uint8_t* at) noexcept {
  std::uint8_t bytes[sizeof(T)];
  std::memcpy(bytes, at, sizeof bytes);
  if constexpr (std::endian::native == std::endian::big) std::reverse(bytes, bytes + sizeof bytes);
  return std::bit_cast<T>(bytes);
}

}  // namespace tutti::base
