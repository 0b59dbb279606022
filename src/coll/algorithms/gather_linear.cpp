// SPDX-License-Identifier: Apache-2.0
// Linear: every rank sends its block to the root, which receives a few at a time. One step, P-1 messages at
// the root, no copy on the way. Blocks may be uneven.
#include "coll/algorithms.hpp"
#include "coll/in_flight.hpp"

namespace tutti::coll {

task<> gather_linear(collective c, const void* block, void* data, blocks parts, std::size_t own_bytes,
                     int root) {
  const int size = c.size();
  if (c.rank() != root) {
    co_await c.send(root, block, own_bytes);
    co_return;
  }
  char* const all = static_cast<char*>(data);
  move_bytes(all + parts.begin(root), block, own_bytes);
  receives_in_flight receives;
  for (int distance = 1; distance < size; ++distance) {
    const int from = (root + distance) % size;
    co_await receives.make_room();
    receives.start([&] { return c.receive(from, all + parts.begin(from), parts.bytes(from)); });
  }
  co_await receives.drain();
}

}  // namespace tutti::coll
