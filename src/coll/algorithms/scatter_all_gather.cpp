// SPDX-License-Identifier: Apache-2.0
#include "coll/algorithms.hpp"

namespace tutti::coll {

// Scatter, then ring all-gather: the root sends every rank one block of the data, and the blocks go round.
// Every rank moves about 2 n bytes instead of the n log P of a tree's root, in 2 (P-1) steps: for large n.
// (van de Geijn 1994.)
task<> broadcast_scatter_all_gather(collective c, std::byte* data, std::size_t bytes, int root) {
  const blocks parts = blocks::split(bytes, c.size(), 1);
  const int rank = c.rank();
  co_await scatter_linear(c, data, data + parts.begin(rank), parts, parts.bytes(rank), root);
  co_await pass_blocks_round(c, data, parts, rank, root);
}

}  // namespace tutti::coll
