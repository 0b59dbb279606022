// SPDX-License-Identifier: Apache-2.0
// Every rank gets all contributions to its block, reduces them at once, and the results go round. The ring's
// traffic, 2 (P-1)/P n bytes each way, in P steps, and memory for one more n. No partial result travels, so
// halves are sent as they are and still rounded once, where the other algorithms send floats in their place.
#include "coll/algorithms.hpp"

namespace tutti::coll {

task<> all_reduce_direct(collective c, reduce_call r) {
  const blocks parts = blocks::split(r.count, c.size(), r.element_bytes);
  reduce_call own = r;
  own.data = static_cast<char*>(r.data) + parts.begin(c.rank());
  co_await reduce_scatter_direct(c, own, parts);
  co_await pass_blocks_round(c, r.data, parts, c.rank());
}

}  // namespace tutti::coll
