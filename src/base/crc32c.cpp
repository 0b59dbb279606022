// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.hpp"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
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
#define TUTTI_CRC_INSTRUCTIONS "sse4.2"
[[gnu::target("sse4.2")]] inline std::uint32_t step(std::uint32_t crc, std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
}
[[gnu::target("sse4.2")]] inline std::uint32_t step(std::uint32_t crc, std::uint8_t byte) noexcept {
  return _mm_crc32_u8(crc, byte);
}
bool has_instructions() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__)
#define TUTTI_CRC_INSTRUCTIONS "+crc"
[[gnu::target("+crc")]] inline std::uint32_t step(std::uint32_t crc, std::uint64_t word) noexcept {
  return __crc32cd(crc, word);
}
[[gnu::target("+crc")]] inline std::uint32_t step(std::uint32_t crc, std::uint8_t byte) noexcept {
  return __crc32cb(crc, byte);
}
bool has_instructions() noexcept { return (::getauxval(AT_HWCAP) & (1UL << 7)) != 0; }  // HWCAP_CRC32
#endif

#if defined(TUTTI_CRC_INSTRUCTIONS)
[[gnu::target(TUTTI_CRC_INSTRUCTIONS)]] std::uint32_t crc32c_by_instruction(
    std::span<const std::uint8_t> bytes, std::uint32_t before) noexcept {
  std::uint32_t crc = ~before;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    crc = step(crc, word);
  }
  for (; at < bytes.size(); ++at) crc = step(crc, bytes[at]);
  return ~crc;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::span<const std::uint8_t> bytes, std::uint32_t before) noexcept {
  std::uint32_t crc = ~before;
  for (const std::uint8_t b : bytes) crc = (crc >> 8) ^ castagnoli[(crc ^ b) & 0xFFU];
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before) noexcept {
#if defined(TUTTI_CRC_INSTRUCTIONS)
  static const bool by_instruction = has_instructions();
  if (by_instruction) return crc32c_by_instruction(bytes, before);
#endif
  return crc32c_by_table(bytes, before);
}

}  // namespace tutti::base
