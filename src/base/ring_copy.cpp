// SPDX-License-Identifier: Apache-2.0
#include "base/ring_copy.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti::base {
namespace {

// Bytes per nanosecond. Plain stores were measured to reach 23 to 40 into a cache in common, and 2 without;
// streaming ones 22 to 27 without (Zen 4).
constexpr double too_slow = 6.0;
constexpr double fast_enough = 12.0;
// A copy can be slow for other reasons (an interrupt, fresh pages).
constexpr unsigned slow_copies = 3;
constexpr unsigned copies_between_trials = 64;

}  // namespace

void ring_copy::plain(void* to, const void* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

#if defined(__x86_64__)
namespace {

// From about here on the C library copies by one string instruction (glibc 2.36, `rep movsb`).
constexpr std::size_t by_instruction = 2048;

// By loads, and by stores of 16 bytes into lines that are written as a whole.
template <class Store>
void copy_lines(void* to, const void* from, std::size_t bytes, Store store) noexcept {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const std::size_t head =
      std::min<std::size_t>(bytes, (64 - reinterpret_cast<std::uintptr_t>(out) % 64) % 64);
  std::memcpy(out, in, head);
  out += head;
  in += head;
  bytes -= head;
  for (; bytes >= 64; bytes -= 64, out += 64, in += 64) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 16));
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 32));
    const __m128i d = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 48));
    store(reinterpret_cast<__m128i*>(out), a);
    store(reinterpret_cast<__m128i*>(out + 16), b);
    store(reinterpret_cast<__m128i*>(out + 32), c);
    store(reinterpret_cast<__m128i*>(out + 48), d);
  }
  std::memcpy(out, in, bytes);
}

}  // namespace

void ring_copy::streaming(void* to, const void* from, std::size_t bytes) noexcept {
  copy_lines(to, from, bytes, [](__m128i* at, __m128i value) { _mm_stream_si128(at, value); });
  // Streaming stores are not ordered with a release store that follows.
  _mm_sfence();
}

void ring_copy::out(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes < by_instruction) return plain(to, from, bytes);
  copy_lines(to, from, bytes, [](__m128i* at, __m128i value) { _mm_store_si128(at, value); });
}
#else
void ring_copy::streaming(void* to, const void* from, std::size_t bytes) noexcept { plain(to, from, bytes); }
void ring_copy::out(void* to, const void* from, std::size_t bytes) noexcept { plain(to, from, bytes); }
#endif

void ring_copy::measured(void* to, const void* from, std::size_t bytes) noexcept {
  using clock = std::chrono::steady_clock;
  if (streams_ && ++since_trial_ < copies_between_trials) return streaming(to, from, bytes);
  const auto start = clock::now();
  plain(to, from, bytes);
  const double took = std::chrono::duration<double, std::nano>(clock::now() - start).count();
  const double rate = static_cast<double>(bytes) / (took > 0 ? took : 1);
  if (streams_) {
    since_trial_ = 0;
    if (rate >= fast_enough) streams_ = false;
  } else if (rate >= too_slow) {
    slow_ = 0;
  } else if (++slow_ >= slow_copies) {
    streams_ = true;
    slow_ = 0;
    since_trial_ = 0;
  }
}

}  // namespace tutti::base
