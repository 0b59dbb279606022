// SPDX-License-Identifier: Apache-2.0
// Reductions of long vectors on a collective segment, in rounds: each rank stages a piece of every slice for
// the rank that reduces that slice, reduces a piece of its own, and collects pieces of the others' results. A
// piece is read by others while it is in cache, and rounds overlap: a rank does whatever the others have made
// possible. What lies in memory that all can read is not staged.
#pragma once

#include "coll/blocks.hpp"
#include "coll/collective.hpp"

#include <cstddef>
#include <tutti/reduce_op.hpp>
#include <tutti/task.hpp>

namespace tutti::coll {

struct segment_reduction {
  const std::byte* input = nullptr;  // prepared
  blocks slices;                     // of the input: slice r is reduced by rank r
  std::byte* result = nullptr;       // where this rank's slice goes; null: only others want it
  bool shown = false;                // others want the results
  std::byte* all = nullptr;          // where the whole result goes, own slice included; null: not wanted here
  bool alike = true;                 // all ranks want the same of the results
  std::size_t element_bytes = 1;
  element_type type{};
  detail::reduction op;
};

// In the turn of an operation that has begun. Ends when this rank has what it wants and has done its part for
// the others.
task<> reduce_on_segment(collective c, segment_reduction what);

}  // namespace tutti::coll
