// SPDX-License-Identifier: Apache-2.0
// Reduce by ring reduce-scatter, then gather: every rank reduces one slice, and the root collects them. P
// steps, about 2 n bytes at the root and n elsewhere, against the n log P of a tree: for large n. The input
// stays as it was, but on the root, where `result` may be the input.
#include "coll/algorithms.hpp"

namespace tutti::coll {

task<> reduce_scatter_gather(collective c, reduce_call r, void* result, int root) {
  const blocks slices = blocks::split(r.count, c.size(), r.element_bytes);
  const std::size_t own = slices.bytes(c.rank());
  const bool is_root = c.rank() == root;
  auto lease = c.scratch().take(is_root ? 0 : own);
  void* const mine =
      is_root ? static_cast<char*>(result) + slices.begin(c.rank()) : static_cast<void*>(lease.data());
  co_await reduce_scatter_ring(c, r, slices, mine);
  co_await gather_linear(c, mine, result, slices, own, root);
}

}  // namespace tutti::coll
