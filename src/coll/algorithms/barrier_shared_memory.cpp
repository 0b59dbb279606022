// SPDX-License-Identifier: Apache-2.0
// Everyone says on the segment that it has come, and looks for the others: one line written, P-1 read.
#include "coll/algorithms.hpp"
#include "coll/segment_publish.hpp"

namespace tutti::coll {

task<> barrier_shared_memory(collective c) { return publish_on_segment(c, posted{}); }

}  // namespace tutti::coll
