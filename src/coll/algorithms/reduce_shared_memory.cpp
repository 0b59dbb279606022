// SPDX-License-Identifier: Apache-2.0
// On a collective segment. Short vectors: every rank writes its own, and the root reduces them: n bytes
// written by each, (P-1) n read by the root. Long vectors in rounds (coll/segment_reduction.hpp): each rank
// reduces a slice, and the root collects the slices.
#include "coll/algorithms.hpp"
#include "coll/segment_publish.hpp"
#include "coll/segment_reduction.hpp"

namespace tutti::coll {

task<> reduce_shared_memory(collective c, reduce_call r, int root) {
  const bool is_root = c.rank() == root;
  const posted all = posted::reduce(c, r.input, r.data, r.count, r.element_bytes, r.type, r.op, root);
  if (all.is_short()) co_return co_await publish_on_segment(c, all);
  segment_reduction what(r, blocks::split(r.count, c.size(), r.element_bytes));
  if (is_root) {
    what.all = static_cast<std::byte*>(r.data);
    what.result = what.all + what.slices.begin(root);
  }
  what.shown = !is_root;
  what.alike = false;
  co_await reduce_on_segment(c, what);
}

}  // namespace tutti::coll
