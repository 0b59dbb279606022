// SPDX-License-Identifier: Apache-2.0
#include "base/ring_copy.hpp"

#include "base/cycles.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tutti::base {
namespace {

constexpr std::size_t line_bytes = 64;

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

[[gnu::target("avx")]] void by_streaming_stores(void* to, const void* from, std::size_t bytes) noexcept {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(out) % line_bytes);
  std::memcpy(out, in, head);
  out += head;
  in += head;
  bytes -= head;
  for (; bytes >= line_bytes; bytes -= line_bytes, out += line_bytes, in += line_bytes) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out + 32), b);
  }
  std::memcpy(out, in, bytes);
  _mm_sfence();  // a release store does not order streaming stores
}

bool has_avx() noexcept {
  static const bool has = __builtin_cpu_supports("avx") != 0;
  return has;
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
  if (has_avx()) return by_long_loads_and_stores(to, from, bytes);
#endif
  using chunk [[gnu::vector_size(16)]] = char;
  copy_lines<chunk>(to, from, bytes);
}

#if !defined(__x86_64__)
void by_streaming_stores(void* to, const void* from, std::size_t bytes) noexcept {
  by_loads_and_stores(to, from, bytes);
}
bool has_avx() noexcept { return false; }
#endif

void by_ordinary_stores(void* to, const void* from, std::size_t bytes) noexcept {
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

// Brings a sample into the cache.
void touch(const void* from) noexcept {
  const auto* const first = static_cast<const volatile char*>(from);
  for (std::size_t at = 0; at < ring_writer::sample_bytes; at += line_bytes) static_cast<void>(first[at]);
}

}  // namespace

void ring_writer::copy_long(void* to, const void* from, std::size_t bytes) noexcept {
  const bool timed = trying_ || ++copies_ % copies_per_sample == 0;
  if (past_caches_ && timed) retry(steady_ns());
  if (past_caches_) return by_streaming_stores(to, from, bytes);
  if (to_settle_ > 0) {
    to_settle_ -= std::min(to_settle_, bytes);
    return by_ordinary_stores(to, from, bytes);
  }
  if (!timed) return by_ordinary_stores(to, from, bytes);
  touch(from);  // only the stores count, not the reading of data that are in no cache
  const std::int64_t begin = steady_ns();
  by_ordinary_stores(to, from, sample_bytes);
  const std::int64_t end = steady_ns();
  took(end - begin, end);
  if (bytes > sample_bytes)
    by_ordinary_stores(static_cast<char*>(to) + sample_bytes, static_cast<const char*>(from) + sample_bytes,
                       bytes - sample_bytes);
}

void ring_writer::took(std::int64_t ns, std::int64_t now) noexcept {
  total_ns_ += std::min(ns, longest_sample_ns);
  if (++samples_ < samples) return;
  past_caches_ = total_ns_ > samples * slow_ns && has_avx();  // for streaming stores
  retry_ns_ = now + pause_ns_;
  pause_ns_ = past_caches_ ? std::min(2 * pause_ns_, longest_ns) : shortest_ns;
  trying_ = false;
  samples_ = 0;
  total_ns_ = 0;
}

void ring_writer::retry(std::int64_t now) noexcept {
  if (now < retry_ns_) return;
  past_caches_ = false;
  trying_ = true;
  to_settle_ = settling_bytes;
}

void copy_out_long(void* to, const void* from, std::size_t bytes) noexcept {
  by_loads_and_stores(to, from, bytes);
}

}  // namespace tutti::base
