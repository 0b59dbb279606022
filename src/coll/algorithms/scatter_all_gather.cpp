// SPDX-License-Identifier: Apache-2.0
#include "coll/algorithms.hpp"

#include <optional>

namespace tutti::coll {

// Scatter, then ring all-gather: the root sends every rank one block of the data, and the blocks go round.
// Every rank moves about 2 n bytes instead of the n log P of a tree's root, in 2 (P-1) steps: for large n.
// (van de Geijn 1994.)
task<> broadcast_scatter_all_gather(collective c, void* data, std::size_t bytes, int root) {
  const int size = c.size();
  const int relative = (c.rank() - root + size) % size;
  char* const all = static_cast<char*>(data);
  // Block i belongs to the rank i places after the root.
  const blocks parts = blocks::split(bytes, size, 1);
  if (relative == 0) {
    sends_in_flight sends;
    for (int i = 1; i < size; ++i) {
      co_await sends.make_room();
      sends.start([&] { return c.send((root + i) % size, all + parts.begin(i), parts.bytes(i)); });
    }
    co_await sends.drain();
  } else {
    co_await c.receive(root, all + parts.begin(relative), parts.bytes(relative));
  }
  for (int step = 0; step + 1 < size; ++step) {
    const int out = (relative - step + size) % size;
    const int in = (relative - step - 1 + size) % size;
    // The root has everything: blocks for it are not sent.
    std::optional<p2p::receiving> receiving;
    if (relative != 0)
      receiving.emplace(
          made_in_place{[&] { return c.receive(c.ahead(-1), all + parts.begin(in), parts.bytes(in)); }});
    std::optional<p2p::sending> sending;
    if (relative + 1 != size)
      sending.emplace(
          made_in_place{[&] { return c.send(c.ahead(1), all + parts.begin(out), parts.bytes(out)); }});
    if (receiving) co_await *receiving;
    if (sending) co_await *sending;
  }
}

}  // namespace tutti::coll
