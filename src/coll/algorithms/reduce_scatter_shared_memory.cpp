// SPDX-License-Identifier: Apache-2.0
// On a collective segment. Short vectors: every rank writes its own, and reduces its block of all: n bytes
// written, (P-1)/P n read. Long vectors in rounds (coll/segment_reduction.hpp), with the same bytes.
#include "coll/algorithms.hpp"
#include "coll/segment_publish.hpp"
#include "coll/segment_reduction.hpp"

namespace tutti::coll {

task<> reduce_scatter_shared_memory(collective c, reduce_call r, blocks parts) {
  const std::size_t bytes = r.count * r.element_bytes;
  const auto* const input = static_cast<const std::byte*>(r.input);
  if (bytes <= most_in_one_posting) {
    posted what;
    what.bytes = bytes;
    what.given = input;
    what.given_bytes = bytes;
    what.what = posted::reading::reduction;
    what.to = r.data;
    what.count = parts.bytes(c.rank()) / r.element_bytes;
    what.type = r.type;
    what.op = &r.op;
    what.offset = parts.begin(c.rank());
    co_await publish_on_segment(c, what);
    co_return;
  }
  segment_reduction what;
  what.input = input;
  what.slices = parts;
  what.result = static_cast<std::byte*>(r.data);
  what.element_bytes = r.element_bytes;
  what.type = r.type;
  what.op = r.op;
  co_await reduce_on_segment(c, what);
}

}  // namespace tutti::coll
