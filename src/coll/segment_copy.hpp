// SPDX-License-Identifier: Apache-2.0
// Copies long blocks on a collective segment, in rounds. Each giving rank stages a piece, and each rank reads
// pieces of others while they are in cache. Data in memory that all can read are not staged.
#pragma once

#include "coll/blocks.hpp"
#include "coll/collective.hpp"

#include <cstddef>
#include <tutti/task.hpp>

namespace tutti::coll {

struct segment_movement {
  int root = -1;                     // the only rank that gives; -1: all do
  bool to_each = false;              // a separate block for every rank; otherwise one for all
  const std::byte* given = nullptr;  // the block, or all of them
  std::size_t given_bytes = 0;       // size of the one for all
  std::byte* received = nullptr;     // with a root its block; otherwise those of all
  blocks parts;                      // of all blocks: block r comes from rank r, and is for it if `to_each`
  std::size_t longest = 0;  // bytes of the longest block that moves, the same on all ranks
  // This rank's block for itself. It is copied piece by piece with the given data, which often are the same
  // and then in cache.
  const std::byte* own_from = nullptr;
  std::byte* own_to = nullptr;
  std::size_t own_bytes = 0;  // at most `longest`
};

// Carries out the movement, in the turn of an operation that has begun. Ends when this rank has received
// everything and its own data are on the segment.
task<> copy_on_segment(collective c, segment_movement what);

}  // namespace tutti::coll
