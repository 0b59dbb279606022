// SPDX-License-Identifier: Apache-2.0
// Copies blocks on a collective segment: short ones in one piece (coll/segment_publish.hpp), long ones in rounds.
// Each giving rank stages a piece, and each rank reads pieces of others while they are in cache. Data in memory
// that all can read are not staged.
#pragma once

#include "coll/segment_publish.hpp"

#include <tutti/task.hpp>

namespace tutti::coll {

// Carries out what posted::broadcast, all_gather or all_to_all says, in the turn of an operation that has begun.
// Ends when this rank has received everything and its own data are on the segment.
task<> copy_on_segment(collective c, const posted& what);

}  // namespace tutti::coll
