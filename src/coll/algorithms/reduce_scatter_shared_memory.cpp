// SPDX-License-Identifier: Apache-2.0
// On a collective segment. Short vectors: every rank writes its own, and reduces its block of all: n bytes
// written, (P-1)/P n read. Long vectors in rounds (coll/segment_reduction.hpp), with the same bytes.
#include "coll/algorithms.hpp"
#include "coll/segment_publish.hpp"
#include "coll/segment_reduction.hpp"

namespace tutti::coll {

task<> reduce_scatter_shared_memory(collective c, reduce_call r, blocks parts) {
  const posted all =
      posted::reduce_scatter(c, r.input, r.data, r.count, r.element_bytes, r.type, r.op, parts);
  if (all.is_short()) co_return co_await publish_on_segment(c, all);
  segment_reduction what(r, parts);
  what.result = static_cast<std::byte*>(r.data);
  co_await reduce_on_segment(c, what);
}

}  // namespace tutti::coll
