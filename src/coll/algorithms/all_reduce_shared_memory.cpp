// SPDX-License-Identifier: Apache-2.0
// On a collective segment. Short vectors: every rank writes its own and reduces those of all: n bytes
// written, (P-1) n read, one wait. Long vectors in rounds (coll/segment_reduction.hpp): each rank reduces a
// slice from all ranks' parts, then all collect the slices. n bytes written and 2 (P-1)/P n read, each once
// and while in cache. Either way all ranks use the same order of operands, and get the same bits.
#include "coll/algorithms.hpp"
#include "coll/segment_publish.hpp"
#include "coll/segment_reduction.hpp"

namespace tutti::coll {

task<> all_reduce_shared_memory(collective c, reduce_call r) {
  const posted all = posted::reduce(c, r.input, r.data, r.count, r.element_bytes, r.type, r.op, -1);
  if (all.is_short()) co_return co_await publish_on_segment(c, all);
  segment_reduction what(r, blocks::split(r.count, c.size(), r.element_bytes));
  what.all = static_cast<std::byte*>(r.data);
  what.result = what.all + what.slices.begin(c.rank());
  what.shown = true;
  co_await reduce_on_segment(c, what);
}

}  // namespace tutti::coll
