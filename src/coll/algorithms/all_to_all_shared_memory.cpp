// SPDX-License-Identifier: Apache-2.0
// On a collective segment: every rank writes its blocks for the others and reads theirs for it, long ones in
// rounds (coll/segment_copy.hpp). (P-1)/P n bytes written, as many read, one wait.
#include "coll/algorithms.hpp"
#include "coll/segment_copy.hpp"

namespace tutti::coll {

task<> all_to_all_shared_memory(collective c, const void* data, blocks parts, void* result, blocks) {
  return copy_on_segment(c, posted::all_to_all(c, data, result, parts));
}

}  // namespace tutti::coll
