// SPDX-License-Identifier: Apache-2.0
// Ring: every block goes round. P-1 steps; every rank sends and receives (P-1)/P of the result, the least
// there is. Blocks may be uneven. The own block is in its place already.
#include "coll/algorithms.hpp"

namespace tutti::coll {

task<> all_gather_ring(collective c, void* data, blocks parts) {
  const int size = c.size();
  const int right = (c.rank() + 1) % size;
  const int left = (c.rank() + size - 1) % size;
  char* const all = static_cast<char*>(data);
  for (int step = 0; step + 1 < size; ++step) {
    const int out = (c.rank() - step + size) % size;
    const int in = (c.rank() - step - 1 + size) % size;
    auto receiving = c.receive(left, all + parts.begin(in), parts.bytes(in));
    auto sending = c.send(right, all + parts.begin(out), parts.bytes(out));
    co_await receiving;
    co_await sending;
  }
}

}  // namespace tutti::coll
