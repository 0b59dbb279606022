// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.hpp"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tutti::base {
namespace {

constexpr auto castagnoli = [] {
  constexpr std::uint32_t reversed_polynomial = 0x82F63B78U;
  std::array<std::uint32_t, 256> remainders{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t r = i;
    for (int bit = 0; bit < 8; ++bit) r = (r >> 1) ^ ((r & 1U) != 0 ? reversed_polynomial : 0U);
    remainders[i] = r;
  }
  return remainders;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(std::span<const std::uint8_t> bytes,
                                                                      std::uint32_t before) noexcept {
  std::uint64_t crc = ~before;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    crc = _mm_crc32_u64(crc, word);
  }
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; at < bytes.size(); ++at) narrow = _mm_crc32_u8(narrow, bytes[at]);
  return ~narrow;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::span<const std::uint8_t> bytes, std::uint32_t before) noexcept {
  std::uint32_t crc = ~before;
  for (const std::uint8_t b : bytes) crc = (crc >> 8) ^ castagnoli[(crc ^ b) & 0xFFU];
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before) noexcept {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_by_instruction(bytes, before);
#endif
  return crc32c_by_table(bytes, before);
}

}  // namespace tutti::base
