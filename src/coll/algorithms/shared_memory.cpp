// SPDX-License-Identifier: Apache-2.0
// Algorithms on a collective segment. Long vectors move and are reduced in rounds (coll/segment_publish.hpp).
#include "base/shared_memory.hpp"
#include "coll/algorithms.hpp"
#include "coll/segment_publish.hpp"

namespace tutti::coll {

// Every rank publishes that it has arrived, and reads the others' words: one line written, P-1 read.
task<> barrier_shared_memory(collective c) { return publish_on_segment(c, posted{}); }

// The root writes, the others read: n bytes written, n read by each, one wait.
task<> broadcast_shared_memory(collective c, std::byte* data, std::size_t bytes, int root) {
  return copy_on_segment(c, posted::broadcast(c, data, bytes, root));
}

// Every rank writes its block and reads those of the others: n/P bytes written, (P-1)/P n read, one wait.
task<> all_gather_shared_memory(collective c, const std::byte* block, std::byte* data, blocks parts) {
  posted what = posted::all_gather(c, block, data, parts);
  std::byte* const own = data + parts.begin(c.rank());
  // If all ranks can read the results, this rank's block is given from there.
  if (!what.is_short() && (overlap(block, what.given_bytes, data, parts.begin(c.size())) ||
                           base::find_shared(own, what.given_bytes))) {
    move_bytes(own, block, what.given_bytes);
    what.given = own;
    what.own = nullptr;
  }
  return copy_on_segment(c, what);
}

// Every rank writes its blocks for the others and reads theirs for it: (P-1)/P n bytes written, as many read,
// one wait.
task<> all_to_all_shared_memory(collective c, const std::byte* data, blocks parts, std::byte* result,
                                blocks) {
  return copy_on_segment(c, posted::all_to_all(c, data, result, parts));
}

// Short vectors: every rank writes its own, and the root reduces them: n bytes written by each, (P-1) n read
// by the root. Long vectors in rounds: each rank reduces a slice, and the root collects the slices. Root -1:
// all ranks reduce the vectors, or collect the slices.
task<> reduce_shared_memory(collective c, reduce_call r, int root) {
  const posted all = posted::reduce(c, r, root);
  if (all.is_short()) co_return co_await publish_on_segment(c, all);
  segment_reduction what{r, blocks::split(r.count, c.size(), r.element_bytes)};
  if (root < 0 || root == c.rank()) {
    what.all = r.data;
    what.result = what.all + what.slices.begin(c.rank());
  }
  what.shown = root != c.rank();
  what.alike = root < 0;
  co_await reduce_on_segment(c, what);
}

// Short vectors: n bytes written, (P-1) n read, one wait. Long ones: n bytes written and 2 (P-1)/P n read,
// each once and while in cache. Either way all ranks use the same order of operands, and get the same bits.
task<> all_reduce_shared_memory(collective c, reduce_call r) { return reduce_shared_memory(c, r, -1); }

// Every rank writes its vector, and reduces its block of all: n bytes written, (P-1)/P n read. Long vectors
// in rounds, with the same bytes.
task<> reduce_scatter_shared_memory(collective c, reduce_call r, blocks parts) {
  const posted all = posted::reduce_scatter(c, r, parts);
  if (all.is_short()) co_return co_await publish_on_segment(c, all);
  segment_reduction what{r, parts};
  what.result = r.data;
  co_await reduce_on_segment(c, what);
}

}  // namespace tutti::coll
