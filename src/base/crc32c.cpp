// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.hpp"

#include "base/crc_table.hpp"

#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tutti::base {
namespace {

constexpr crc_table castagnoli = crc_table_of(0x82F63B78U);

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
  return crc_of(castagnoli, bytes, before);
}

std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before) noexcept {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_by_instruction(bytes, before);
#endif
  return crc32c_by_table(bytes, before);
}

}  // namespace tutti::base
