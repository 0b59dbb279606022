// SPDX-License-Identifier: Apache-2.0
// Bruck's algorithm: blocks are sorted by their distance to go. In round k all blocks whose distance has bit
// k set travel 2^k ranks together. ceil(log2 P) rounds of n/2 bytes instead of P-1 messages: for small even
// blocks. (Bruck et al. 1997.)
#include "coll/algorithms.hpp"

#include <cstring>

namespace tutti::coll {

task<> all_to_all_bruck(collective c, const void* data, blocks parts, void* result, blocks) {
  const std::size_t block_bytes = parts.bytes(c.rank());
  if (block_bytes == 0) co_return;
  const int size = c.size();
  const int rank = c.rank();
  const auto at = [&](int n) { return static_cast<std::size_t>(n) * block_bytes; };
  auto lease = c.scratch().take(at(size));
  auto travelling = c.scratch().take(at(2 * ((size + 1) / 2)));
  std::byte* const sorted = lease.data();  // by distance to go
  std::byte* const out = travelling.data();
  std::byte* const in = travelling.data() + at((size + 1) / 2);
  std::memcpy(sorted, static_cast<const char*>(data) + at(rank), at(size - rank));
  if (rank > 0) std::memcpy(sorted + at(size - rank), data, at(rank));
  for (int mask = 1; mask < size; mask *= 2) {
    int n = 0;
    for (int d = 1; d < size; ++d)
      if ((d & mask) != 0) std::memcpy(out + at(n++), sorted + at(d), block_bytes);
    auto sending = c.send((rank + mask) % size, out, at(n));
    co_await c.receive((rank - mask + size) % size, in, at(n));
    co_await sending;
    n = 0;
    for (int d = 1; d < size; ++d)
      if ((d & mask) != 0) std::memcpy(sorted + at(d), in + at(n++), block_bytes);
  }
  // A block that has travelled d ranks comes from the rank d behind.
  char* const all = static_cast<char*>(result);
  for (int d = 0; d < size; ++d) std::memcpy(all + at((rank - d + size) % size), sorted + at(d), block_bytes);
}

}  // namespace tutti::coll
