// SPDX-License-Identifier: Apache-2.0
#include "base/ring_copy.hpp"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tutti::base {
namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::size_t least_long_bytes = 16 * 1024;

// `Chunk` is the type of a register.
template <class Chunk>
[[gnu::always_inline]] inline void copy_lines(void* to, const void* from, std::size_t bytes) noexcept {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  // Whole lines from here on.
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(out) % line_bytes;
  std::memcpy(out, in, head);
  out += head;
  in += head;
  bytes -= head;
  constexpr std::size_t step = 2 * sizeof(Chunk);
  for (; bytes >= step; bytes -= step, out += step, in += step) {
    Chunk a, b;
    std::memcpy(&a, in, sizeof a);
    std::memcpy(&b, in + sizeof a, sizeof b);
    std::memcpy(out, &a, sizeof a);
    std::memcpy(out + sizeof a, &b, sizeof b);
  }
  std::memcpy(out, in, bytes);
}

#if defined(__x86_64__)
using long_chunk [[gnu::vector_size(32)]] = char;
[[gnu::target("avx")]] void by_long_loads_and_stores(void* to, const void* from, std::size_t bytes) noexcept {
  copy_lines<long_chunk>(to, from, bytes);
}

bool has_fast_string_copy() noexcept {
  constexpr unsigned erms = 1U << 9, fsrm = 1U << 4;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && ((b & erms) != 0 || (d & fsrm) != 0);
}

void by_string_instruction(void* to, const void* from, std::size_t bytes) noexcept {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
#endif

void by_loads_and_stores(void* to, const void* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  static const bool has_long = __builtin_cpu_supports("avx") != 0;
  if (has_long) return by_long_loads_and_stores(to, from, bytes);
#endif
  using chunk [[gnu::vector_size(16)]] = char;
  copy_lines<chunk>(to, from, bytes);
}

}  // namespace

void copy_in(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes < least_long_bytes) {
    std::memcpy(to, from, bytes);
    return;
  }
#if defined(__x86_64__)
  static const bool fast = has_fast_string_copy();
  if (fast) return by_string_instruction(to, from, bytes);
#endif
  by_loads_and_stores(to, from, bytes);
}

void copy_out(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes < least_long_bytes) {
    std::memcpy(to, from, bytes);
  } else {
    by_loads_and_stores(to, from, bytes);
  }
}

}  // namespace tutti::base
