// SPDX-License-Identifier: Apache-2.0
// Binomial tree: the number of ranks that have the data doubles in every round. ceil(log2 P) rounds; every
// rank receives once, and the root sends at most ceil(log2 P) times the whole buffer.
#include "coll/algorithms.hpp"

namespace tutti::coll {

task<> broadcast_binomial(collective c, void* data, std::size_t bytes, int root) {
  const int size = c.size();
  const int relative = (c.rank() - root + size) % size;
  int mask = 1;
  while (mask < size && (relative & mask) == 0) mask *= 2;
  if (relative != 0) {
    co_await c.receive((relative - mask + root) % size, data, bytes);
  }
  for (mask /= 2; mask > 0; mask /= 2) {
    if (relative + mask >= size) continue;
    co_await c.send((relative + mask + root) % size, data, bytes);
  }
}

}  // namespace tutti::coll
