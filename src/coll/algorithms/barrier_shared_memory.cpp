// SPDX-License-Identifier: Apache-2.0
// On a collective segment: every rank publishes that it has arrived, and reads the others' words: one line
// written, P-1 read.
#include "coll/algorithms.hpp"
#include "coll/segment_publish.hpp"

namespace tutti::coll {

task<> barrier_shared_memory(collective c) { return publish_on_segment(c, posted{}); }

}  // namespace tutti::coll
