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

// A register. Loaded and stored by a memcpy of constant size, which compiles to one instruction.
using chunk [[gnu::vector_size(16)]] = char;

chunk load(const char* from) noexcept {
  chunk c;
  std::memcpy(&c, from, sizeof c);
  return c;
}
void store(char* to, const chunk& c) noexcept { std::memcpy(to, &c, sizeof c); }

void by_loads_and_stores(void* to, const void* from, std::size_t bytes) noexcept {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  // Whole lines from here on.
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(out) % line_bytes;
  std::memcpy(out, in, head);
  out += head;
  in += head;
  bytes -= head;
  for (; bytes >= line_bytes; bytes -= line_bytes, out += line_bytes, in += line_bytes) {
    const chunk a = load(in), b = load(in + 16), c = load(in + 32), d = load(in + 48);
    store(out, a);
    store(out + 16, b);
    store(out + 32, c);
    store(out + 48, d);
  }
  std::memcpy(out, in, bytes);
}

#if defined(__x86_64__)
bool has_fast_string_copy() noexcept {
  constexpr unsigned erms = 1U << 9, fsrm = 1U << 4;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && ((b & erms) != 0 || (d & fsrm) != 0);
}

void by_string_instruction(void* to, const void* from, std::size_t bytes) noexcept {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
#endif

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
