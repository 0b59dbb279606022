// SPDX-License-Identifier: Apache-2.0
#include "base/ring_copy.hpp"

#include <doctest/doctest.h>
#include <atomic>
#include <cstddef>
#include <cstring>
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

// Copies `bytes` from one alignment to another, and touches nothing around.
void check(copy function, std::size_t bytes, std::size_t from_offset, std::size_t to_offset) {
  const std::vector<unsigned char> from = numbered(bytes + 64);
  std::vector<unsigned char> to(bytes + 192, 0xee);
  function(to.data() + 64 + to_offset, from.data() + from_offset, bytes);
  CHECK(std::memcmp(to.data() + 64 + to_offset, from.data() + from_offset, bytes) == 0);
  for (std::size_t i = 0; i < 64 + to_offset; ++i) REQUIRE(to[i] == 0xee);
  for (std::size_t i = 64 + to_offset + bytes; i < to.size(); ++i) REQUIRE(to[i] == 0xee);
}

}  // namespace

TEST_CASE("ring_copy: copy_in and copy_out copy what memcpy would") {
  for (const std::size_t bytes : {0, 1, 63, 64, 4096, 16383, 16384, 16385, 16447, 16448, 16449, 70001})
    for (const std::size_t from_offset : {0, 1, 33})
      for (const std::size_t to_offset : {0, 1, 16, 63})
        for (const copy function : {&copy_in, &copy_out}) check(function, bytes, from_offset, to_offset);
}

TEST_CASE("ring_copy: a release store publishes what copy_in has written") {
  constexpr std::size_t bytes = 32 * 1024;
  constexpr unsigned char rounds = 200;
  std::vector<unsigned char> shared(bytes), taken(bytes);
  std::atomic<unsigned> written = 0, read = 0;
  std::thread writer([&] {
    std::vector<unsigned char> own(bytes);
    for (unsigned n = 1; n <= rounds; ++n) {
      std::memset(own.data(), static_cast<int>(n), bytes);
      copy_in(shared.data(), own.data(), bytes);
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
