// SPDX-License-Identifier: Apache-2.0
// Long blocks on a collective segment, in rounds: each rank that has something to give stages a piece of it,
// and reads pieces of others while they are in cache. What lies in memory that all can read is not staged.
#pragma once

#include "coll/blocks.hpp"
#include "coll/collective.hpp"

#include <cstddef>
#include <tutti/task.hpp>

namespace tutti::coll {

struct segment_movement {
  int root = -1;                     // who alone gives; -1: all do
  bool to_each = false;              // a block of its own for every rank; else the same one for all
  const std::byte* given = nullptr;  // the block, or all of them
  std::size_t given_bytes = 0;       // of the one for all
  blocks given_parts;                // block r is for rank r
  std::byte* received = nullptr;     // with a root its block; else block r is what rank r has given
  blocks received_parts;
  std::size_t longest = 0;  // bytes of the longest block that moves, the same on all ranks
  // This rank's block for itself, copied piece by piece with what it gives: often the same, and then in
  // cache.
  const std::byte* own_from = nullptr;
  std::byte* own_to = nullptr;
  std::size_t own_bytes = 0;  // at most `longest`
};

// In the turn of an operation that has begun. Ends when this rank has received everything and what it gives
// is on the segment.
task<> copy_on_segment(collective c, segment_movement what);

}  // namespace tutti::coll
