// SPDX-License-Identifier: Apache-2.0
// Binomial tree towards the root: in round k the ranks that still have data send all of it to the rank 2^k
// nearer to the root, which reduces it. ceil(log2 P) rounds of n bytes: for small n.
#include "coll/algorithms.hpp"
#include "coll/reduce.hpp"

namespace tutti::coll {

task<> reduce_binomial(collective c, reduce_call r, int root) {
  const int size = c.size();
  const int relative = (c.rank() - root + size) % size;
  const std::size_t bytes = r.count * r.element_bytes;
  auto own = c.scratch().take(r.data == nullptr ? bytes : 0);
  if (r.data == nullptr) r.data = own.data();
  r.copy_input();
  auto lease = c.scratch().take(bytes);
  for (int mask = 1; mask < size; mask *= 2) {
    if ((relative & mask) != 0) {
      co_await c.send((relative - mask + root) % size, r.data, bytes);
      co_return;
    }
    if (relative + mask >= size) continue;
    co_await c.receive((relative + mask + root) % size, lease.data(), bytes);
    combine(r.op, r.type, r.data, lease.data(), r.data, r.count);
  }
}

}  // namespace tutti::coll
