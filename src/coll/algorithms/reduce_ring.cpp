// SPDX-License-Identifier: Apache-2.0
// Reduces by ring reduce-scatter, then gather: every rank reduces one slice, and the root collects them. P
// steps, about 2 n bytes at the root and n elsewhere, against the n log P of a tree: for large n. The input
// stays unchanged, except on the root, where it may be the result.
#include "coll/algorithms.hpp"

namespace tutti::coll {

task<> reduce_ring(collective c, reduce_call r, int root) {
  const blocks slices = blocks::split(r.count, c.size(), r.element_bytes);
  const std::size_t own = slices.bytes(c.rank());
  const bool is_root = c.rank() == root;
  auto lease = c.scratch().take(is_root ? 0 : own);
  reduce_call slice = r;
  slice.data = is_root ? static_cast<char*>(r.data) + slices.begin(root) : static_cast<void*>(lease.data());
  co_await reduce_scatter_ring(c, slice, slices);
  co_await gather_linear(c, slice.data, r.data, slices, own, root);
}

}  // namespace tutti::coll
