// SPDX-License-Identifier: Apache-2.0
// Binomial tree: a rank forwards the blocks of the ranks behind it, half of what it has in every round.
// ceil(log2 P) rounds instead of P-1 messages at the root, but every block is copied on the way: for small
// even blocks of many ranks.
#include "coll/algorithms.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::coll {

task<> scatter_binomial(collective c, const void* data, void* block, blocks, std::size_t block_bytes,
                        int root) {
  const int size = c.size();
  const int relative = (c.rank() - root + size) % size;
  const auto at = [&](int n) { return static_cast<std::size_t>(n) * block_bytes; };
  int mask = 1;
  while (mask < size && (relative & mask) == 0) mask *= 2;
  const int held = std::min(mask, size - relative);
  auto lease = c.scratch().take(at(held));  // in the order of the distance from the root, the own one first
  if (relative == 0) {
    const char* const all = static_cast<const char*>(data);
    if (block_bytes > 0) {
      std::memcpy(lease.data(), all + at(root), at(size - root));
      if (root > 0) std::memcpy(lease.data() + at(size - root), all, at(root));
    }
  } else {
    co_await c.receive((relative - mask + root) % size, lease.data(), at(held));
  }
  for (mask /= 2; mask > 0; mask /= 2) {
    if (relative + mask >= size) continue;
    co_await c.send((relative + mask + root) % size, lease.data() + at(mask),
                    at(std::min(mask, size - relative - mask)));
  }
  // Only now: the root's result may be part of its input.
  if (block_bytes > 0) std::memmove(block, lease.data(), block_bytes);
}

}  // namespace tutti::coll
