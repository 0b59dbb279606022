// SPDX-License-Identifier: Apache-2.0
#include "base/ring_copy.hpp"

#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

using namespace tutti::base;

namespace {

std::vector<unsigned char> numbered(std::size_t bytes) {
  std::vector<unsigned char> v(bytes);
  for (std::size_t i = 0; i < bytes; ++i) v[i] = static_cast<unsigned char>(i * 31 + (i >> 8));
  return v;
}

using copy = void (*)(void* to, const void* from, std::size_t bytes) noexcept;

void copy_in(void* to, const void* from, std::size_t bytes) noexcept {
  ring_writer w;
  w.copy(to, from, bytes);
}

// A writer that has measured slow stores.
ring_writer slow_writer(std::int64_t now = 0) {
  ring_writer w;
  for (int i = 0; i < ring_writer::samples; ++i) w.took(2 * ring_writer::slow_ns, now);
  return w;
}

// Never retries within a test.
void copy_in_past_caches(void* to, const void* from, std::size_t bytes) noexcept {
  ring_writer w = slow_writer(std::numeric_limits<std::int64_t>::max() / 2);
  w.copy(to, from, bytes);
}

// Copies `bytes` between two alignments, and checks that nothing around them changes.
void check(copy function, std::size_t bytes, std::size_t from_offset, std::size_t to_offset) {
  const std::vector<unsigned char> from = numbered(bytes + 64);
  std::vector<unsigned char> to(bytes + 192, 0xee);
  function(to.data() + 64 + to_offset, from.data() + from_offset, bytes);
  CHECK(std::memcmp(to.data() + 64 + to_offset, from.data() + from_offset, bytes) == 0);
  for (std::size_t i = 0; i < 64 + to_offset; ++i) REQUIRE(to[i] == 0xee);
  for (std::size_t i = 64 + to_offset + bytes; i < to.size(); ++i) REQUIRE(to[i] == 0xee);
}

}  // namespace

TEST_CASE("ring_copy: ring_writer and copy_out copy like memcpy") {
  for (const std::size_t bytes : {0, 1, 63, 64, 4096, 16383, 16384, 16385, 16447, 16448, 16449, 70001})
    for (const std::size_t from_offset : {0, 1, 33})
      for (const std::size_t to_offset : {0, 1, 16, 63})
        for (const copy function : {&copy_in, &copy_in_past_caches, &copy_out})
          check(function, bytes, from_offset, to_offset);
}

TEST_CASE("ring_copy: a release store publishes the bytes of ring_writer") {
  ring_writer out;
  SUBCASE("by ordinary stores") {}
  SUBCASE("past the caches") { out = slow_writer(std::numeric_limits<std::int64_t>::max() / 2); }
  constexpr std::size_t bytes = 32 * 1024;
  constexpr unsigned char rounds = 200;
  std::vector<unsigned char> shared(bytes), taken(bytes);
  std::atomic<unsigned> written = 0, read = 0;
  std::thread writer([&] {
    std::vector<unsigned char> own(bytes);
    for (unsigned n = 1; n <= rounds; ++n) {
      std::memset(own.data(), static_cast<int>(n), bytes);
      out.copy(shared.data(), own.data(), bytes);
      written.store(n, std::memory_order_release);
      written.notify_one();
      read.wait(n - 1, std::memory_order_acquire);
    }
  });
  unsigned wrong = 0;
  for (unsigned n = 1; n <= rounds; ++n) {
    written.wait(n - 1, std::memory_order_acquire);
    copy_out(taken.data(), shared.data(), bytes);
    for (const unsigned char byte : taken) wrong += byte != n ? 1 : 0;
    read.store(n, std::memory_order_release);
    read.notify_one();
  }
  writer.join();
  CHECK(wrong == 0);
}

TEST_CASE("ring_copy: slow samples make the writer bypass the caches for a while") {
  if (!slow_writer().past_caches()) TUTTI_SKIP("this processor has no stores past the caches");
  ring_writer w;
  const auto samples = [&w](std::int64_t ns, std::int64_t now) {
    for (int i = 0; i < ring_writer::samples; ++i) w.took(ns, now);
  };
  samples(ring_writer::slow_ns / 4, 0);
  CHECK_FALSE(w.past_caches());

  // A single interruption, however long, does not count as slow stores.
  w.took(1'000'000'000, 0);
  for (int i = 1; i < ring_writer::samples; ++i) w.took(ring_writer::slow_ns / 4, 0);
  CHECK_FALSE(w.past_caches());

  std::int64_t now = 1;
  samples(2 * ring_writer::slow_ns, now);
  CHECK(w.past_caches());

  // Each slow retry doubles the time to the next, up to a limit.
  for (std::int64_t pause = ring_writer::shortest_ns; pause <= ring_writer::longest_ns; pause *= 2) {
    w.retry(now + pause - 1);
    CHECK(w.past_caches());
    now += pause;
    w.retry(now);
    CHECK_FALSE(w.past_caches());
    samples(2 * ring_writer::slow_ns, now);
    CHECK(w.past_caches());
  }
  w.retry(now + ring_writer::longest_ns);
  CHECK_FALSE(w.past_caches());

  // A fast retry ends the bypass.
  samples(ring_writer::slow_ns / 4, now);
  CHECK_FALSE(w.past_caches());
  samples(2 * ring_writer::slow_ns, now);
  w.retry(now + ring_writer::shortest_ns);
  CHECK_FALSE(w.past_caches());
}
