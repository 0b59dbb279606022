// SPDX-License-Identifier: Apache-2.0
// Collectives on data in memory of tutti::shared_allocator. If all buffers that others need lie there, every
// rank reads them in place and nothing is staged.
//
// Reading is safe: others' memory is mapped read-only and never shrinks. A rank returns only when all have
// read what they need of it. A rank that ends early fails the communicator, and no rank that was still
// reading succeeds.
#pragma once

#include "coll/blocks.hpp"
#include "coll/collective.hpp"

#include <array>
#include <cstddef>
#include <tutti/task.hpp>

namespace tutti::coll {

// Shorter data are staged, because agreeing costs a second wait.
inline constexpr std::size_t least_direct = 128 * 1024;

// What a rank lets the others read: its data, and the place of its results.
struct own_memory {
  const void* data = nullptr;
  std::size_t data_bytes = 0;
  const void* results = nullptr;
  std::size_t results_bytes = 0;
};

// The others' memory by rank; null where there are no bytes.
struct memory_of_others {
  std::array<const std::byte*, comm::collective_segment::most_ranks> data{};
  std::array<const std::byte*, comm::collective_segment::most_ranks> results{};
  bool agreed = false;  // the same on all ranks; false: data must be staged
};

// Waits for room, arrives, and finds out whether all ranks can read what they need. With a `root` only its
// data are read; -1: those of all. `whole` is the size in bytes of the largest buffer, the same on all ranks.
// `parts` gives the ranks' data lengths if they differ, otherwise null.
task<> arrive_and_agree(collective c, own_memory mine, int root, std::size_t whole, const blocks* parts,
                        memory_of_others* others);

// Tells that this rank has read the others' memory, up to `end` of the stream. If its own `is_read`, waits until
// all have consumed what comes before `end`. The loop has its turn before: a rank that ended early failed the
// communicator before its program had the buffers back, so that is heard now.
task<> end_reading(collective c, std::uint64_t end, bool is_read);

}  // namespace tutti::coll
