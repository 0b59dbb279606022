// SPDX-License-Identifier: Apache-2.0
#include "base/ring_copy.hpp"

#include <doctest/doctest.h>
#include <cstddef>
#include <cstring>
#include <vector>

using tutti::base::ring_copy;

namespace {

std::vector<unsigned char> numbered(std::size_t bytes) {
  std::vector<unsigned char> v(bytes);
  for (std::size_t i = 0; i < bytes; ++i) v[i] = static_cast<unsigned char>(i * 31 + (i >> 8));
  return v;
}

// Copies `bytes` from one alignment to another, and touches nothing around.
template <class Copy>
void check(const Copy& copy, std::size_t bytes, std::size_t from_offset, std::size_t to_offset) {
  const std::vector<unsigned char> from = numbered(bytes + 64);
  std::vector<unsigned char> to(bytes + 192, 0xee);
  copy(to.data() + 64 + to_offset, from.data() + from_offset, bytes);
  CHECK(std::memcmp(to.data() + 64 + to_offset, from.data() + from_offset, bytes) == 0);
  for (std::size_t i = 0; i < 64 + to_offset; ++i) REQUIRE(to[i] == 0xee);
  for (std::size_t i = 64 + to_offset + bytes; i < to.size(); ++i) REQUIRE(to[i] == 0xee);
}

}  // namespace

TEST_CASE("ring_copy: every way copies what memcpy would") {
  ring_copy adaptive;
  for (const std::size_t bytes :
       {0, 1, 15, 63, 64, 65, 127, 128, 1000, 2047, 2048, 2111, 4095, 4096, 4097, 70001}) {
    for (const std::size_t from_offset : {0, 1, 33}) {
      for (const std::size_t to_offset : {0, 1, 16, 63}) {
        check([](void* to, const void* from, std::size_t n) { ring_copy::plain(to, from, n); }, bytes,
              from_offset, to_offset);
        check([](void* to, const void* from, std::size_t n) { ring_copy::out(to, from, n); }, bytes,
              from_offset, to_offset);
        check([](void* to, const void* from, std::size_t n) { ring_copy::streaming(to, from, n); }, bytes,
              from_offset, to_offset);
        check([&](void* to, const void* from, std::size_t n) { adaptive(to, from, n); }, bytes, from_offset,
              to_offset);
      }
    }
  }
}
