// SPDX-License-Identifier: Apache-2.0
// The root exchanges blocks with every other rank directly, a few at a time: one step, P-1 messages at the
// root, no copy on the way. Blocks may be uneven.
#include "coll/algorithms.hpp"

namespace tutti::coll {

task<> gather_linear(collective c, const std::byte* block, std::byte* data, blocks parts,
                     std::size_t own_bytes, int root) {
  const int size = c.size();
  if (c.rank() != root) {
    co_await c.send(root, block, own_bytes);
    co_return;
  }
  move_bytes(data + parts.begin(root), block, own_bytes);
  receives_in_flight receives;
  for (int distance = 1; distance < size; ++distance) {
    const int from = (root + distance) % size;
    co_await receives.make_room();
    receives.start([&] { return c.receive(from, data + parts.begin(from), parts.bytes(from)); });
  }
  co_await receives.drain();
}

task<> scatter_linear(collective c, const std::byte* data, std::byte* block, blocks parts,
                      std::size_t own_bytes, int root) {
  const int size = c.size();
  if (c.rank() != root) {
    co_await c.receive(root, block, own_bytes);
    co_return;
  }
  move_bytes(block, data + parts.begin(root), own_bytes);
  sends_in_flight sends;
  for (int distance = 1; distance < size; ++distance) {
    const int to = (root + distance) % size;
    co_await sends.make_room();
    sends.start([&] { return c.send(to, data + parts.begin(to), parts.bytes(to)); });
  }
  co_await sends.drain();
}

}  // namespace tutti::coll
