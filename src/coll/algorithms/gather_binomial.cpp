// SPDX-License-Identifier: Apache-2.0
// Binomial tree: in round k a rank sends all blocks it has collected to the rank 2^k nearer to the root.
// ceil(log2 P) rounds instead of P-1 messages at the root, but every block is copied on the way: for small
// even blocks of many ranks.
#include "coll/algorithms.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::coll {

task<> gather_binomial(collective c, const void* block, void* data, blocks, std::size_t block_bytes,
                       int root) {
  const int size = c.size();
  const int relative = (c.rank() - root + size) % size;
  const auto at = [&](int n) { return static_cast<std::size_t>(n) * block_bytes; };
  // Blocks in the order of the distance from the root, the own one first.
  int reach = 1;
  while (relative + reach < size && (relative & reach) == 0) reach *= 2;
  auto lease = c.scratch().take(at(relative == 0 ? size : std::min(reach, size - relative)));
  if (block_bytes > 0) std::memcpy(lease.data(), block, block_bytes);
  for (int mask = 1; mask < size; mask *= 2) {
    if ((relative & mask) != 0) {
      co_await c.send((relative - mask + root) % size, lease.data(), at(std::min(mask, size - relative)));
      co_return;
    }
    if (relative + mask >= size) continue;
    co_await c.receive((relative + mask + root) % size, lease.data() + at(mask),
                       at(std::min(mask, size - relative - mask)));
  }
  if (block_bytes == 0) co_return;
  char* const all = static_cast<char*>(data);
  std::memcpy(all + at(root), lease.data(), at(size - root));
  if (root > 0) std::memcpy(all, lease.data() + at(size - root), at(root));
}

}  // namespace tutti::coll
