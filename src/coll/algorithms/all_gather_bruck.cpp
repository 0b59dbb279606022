// SPDX-License-Identifier: Apache-2.0
// Bruck's algorithm: in round k every rank sends all blocks it has to the rank 2^k behind it. ceil(log2 P)
// rounds for any P, and one copy at the end that puts the blocks in place. For small even blocks. (Bruck et
// al. 1997.)
#include "coll/algorithms.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::coll {

task<> all_gather_bruck(collective c, const void* block, void* data, blocks parts) {
  const int size = c.size();
  const int rank = c.rank();
  const std::size_t block_bytes = parts.bytes(rank);
  char* const all = static_cast<char*>(data);
  const auto at = [&](int n) { return static_cast<std::size_t>(n) * block_bytes; };
  auto lease = c.scratch().take(at(size));
  std::byte* const turned = lease.data();  // the own block first, then those of the following ranks
  if (block_bytes > 0) std::memcpy(turned, block, block_bytes);
  for (int have = 1; have < size; have *= 2) {
    const int wanted = std::min(have, size - have);
    auto sending = c.send((rank - have + size) % size, turned, at(wanted));
    co_await c.receive((rank + have) % size, turned + at(have), at(wanted));
    co_await sending;
  }
  if (block_bytes == 0) co_return;
  std::memcpy(all + at(rank), turned, at(size - rank));
  if (rank > 0) std::memcpy(all, turned + at(size - rank), at(rank));
}

}  // namespace tutti::coll
