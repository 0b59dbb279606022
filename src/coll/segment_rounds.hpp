// SPDX-License-Identifier: Apache-2.0
// Copies and reductions of long vectors on a collective segment, in rounds. Each rank stages a piece of what
// the others need, and reads pieces of others while they are in cache. Rounds overlap: a rank takes whatever
// step the others have made possible. Data in memory that all can read are not staged.
#pragma once

#include "coll/algorithms.hpp"
#include "coll/segment_publish.hpp"

#include <cstddef>

namespace tutti::coll {

// Carries out what posted::broadcast, all_gather or all_to_all says, in the turn of an operation that has
// begun; short blocks in one piece (coll/segment_publish.hpp). Ends when this rank has received everything
// and its own data are on the segment.
task<> copy_on_segment(collective c, const posted& what);

// Each rank stages a piece of every slice for the rank that reduces that slice. It reduces a piece of its own
// slice, and collects pieces of the others' results.
struct segment_reduction {
  segment_reduction(const reduce_call& r, const blocks& s) noexcept
      : input(static_cast<const std::byte*>(r.input)),
        slices(s),
        element_bytes(r.element_bytes),
        type(r.type),
        op(r.op) {}
  const std::byte* input;       // prepared
  blocks slices;                // of the input: slice r is reduced by rank r
  std::byte* result = nullptr;  // place of this rank's slice; null: only others want it
  bool shown = false;           // others want the results
  std::byte* all = nullptr;     // place of the whole result, own slice included; null: not wanted here
  bool alike = true;            // all ranks want the same of the results
  std::size_t element_bytes;
  element_type type;
  detail::reduction op;
};

// Carries out the reduction, in the turn of an operation that has begun. Ends when this rank has what it
// wants and has done its part for the others.
task<> reduce_on_segment(collective c, segment_reduction what);

}  // namespace tutti::coll
