// SPDX-License-Identifier: Apache-2.0
// Ring: the partial result of each block goes round once, and every rank on the way adds its contribution; it
// ends at its owner. P-1 steps; every rank sends and receives (P-1)/P n bytes, which is the minimum: for
// large n.
#include "coll/algorithms.hpp"
#include "coll/reduce.hpp"

#include <cstring>
#include <utility>

namespace tutti::coll {

task<> reduce_scatter_ring(collective c, reduce_call r, blocks parts) {
  const int size = c.size();
  const int rank = c.rank();
  const int right = (rank + 1) % size;
  const int left = (rank + size - 1) % size;
  const char* const in = static_cast<const char*>(r.input);
  if (size == 1) {
    move_bytes(r.data, in, parts.bytes(0));
    co_return;
  }
  const std::size_t longest = parts.longest(size);
  auto lease = c.scratch().take(2 * longest);
  std::byte* arriving = lease.data();
  std::byte* leaving = lease.data() + longest;
  // The block that starts here is that of the left neighbour, which has the longest way.
  const void* next = in + parts.begin(left);
  for (int step = 0; step + 1 < size; ++step) {
    const int out_block = (rank - step - 1 + size) % size;
    const int in_block = (rank - step - 2 + 2 * size) % size;
    auto sending = c.send(right, next, parts.bytes(out_block));
    co_await c.receive(left, arriving, parts.bytes(in_block));
    const bool last = step + 2 == size;
    combine(r.op, r.type, arriving, in + parts.begin(in_block), arriving,
            parts.bytes(in_block) / r.element_bytes);
    co_await sending;
    next = arriving;
    std::swap(arriving, leaving);
    // Only now: until here the result may have been part of the input that is still needed.
    if (last && parts.bytes(in_block) > 0) std::memcpy(r.data, next, parts.bytes(in_block));
  }
}

}  // namespace tutti::coll
