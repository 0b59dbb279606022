// SPDX-License-Identifier: Apache-2.0
// Integers as bytes, least significant first on every machine: their form on every wire.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tutti::base {

template <std::integral T>
void put_little_endian(std::uint8_t* at, T value) noexcept {
  auto bits = static_cast<std::make_unsigned_t<T>>(value);
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(at, &bits, sizeof bits);
  } else {
    for (std::size_t i = 0; i < sizeof bits; ++i)
      at[i] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(bits) >> (8 * i));
  }
}

template <std::integral T>
T get_little_endian(const std::uint8_t* at) noexcept {
  std::make_unsigned_t<T> bits{};
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&bits, at, sizeof bits);
  } else {
    std::uint64_t wide = 0;
    for (std::size_t i = 0; i < sizeof bits; ++i) wide |= static_cast<std::uint64_t>(at[i]) << (8 * i);
    bits = static_cast<std::make_unsigned_t<T>>(wide);
  }
  return static_cast<T>(bits);
}

}  // namespace tutti::base
