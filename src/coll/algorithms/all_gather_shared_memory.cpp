// SPDX-License-Identifier: Apache-2.0
// On a collective segment: every rank writes its block and reads those of the others, long ones in rounds
// (coll/segment_copy.hpp). n/P bytes written, (P-1)/P n read, one wait.
#include "base/shared_memory.hpp"
#include "coll/algorithms.hpp"
#include "coll/segment_copy.hpp"

namespace tutti::coll {

task<> all_gather_shared_memory(collective c, const void* block, void* data, blocks parts) {
  posted what = posted::all_gather(c, block, data, parts);
  std::byte* const own = static_cast<std::byte*>(data) + parts.begin(c.rank());
  // If all ranks can read the results, this rank's block is given from there.
  if (!what.is_short() && (overlap(block, what.given_bytes, data, parts.begin(c.size())) ||
                           base::find_shared(own, what.given_bytes))) {
    move_bytes(own, block, what.given_bytes);
    what.given = own;
    what.own = nullptr;
  }
  return copy_on_segment(c, what);
}

}  // namespace tutti::coll
