// SPDX-License-Identifier: Apache-2.0
// Operations on a collective segment.
//
// With few bytes, every giving rank writes all of its data in one piece. A receiving rank waits for the ranks
// that it reads from, and reads. There is one wait, which often ends before the loop's next turn.
//
// Long vectors are copied and reduced in rounds. Each rank stages a piece of what the others need, and reads
// pieces of others while they are in cache. Rounds overlap: a rank takes whatever step the others have made
// possible. Data in memory that all can read are not staged.
#pragma once

#include "coll/algorithms.hpp"
#include "coll/segment_progress.hpp"

#include <cstddef>
#include <tutti/detail/operation_state.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/task.hpp>

namespace tutti::coll {

struct posted {
  static constexpr int all = -1;
  static constexpr int nobody = -2;
  enum class reading { nothing, one_block, blocks_of_all, reduction };

  static posted broadcast(const collective& c, std::byte* data, std::size_t bytes, int root) noexcept;
  // `r.op` outlives it. Root -1: all ranks get the result.
  static posted reduce(const collective& c, const reduce_call& r, int root) noexcept;
  static posted reduce_scatter(const collective& c, const reduce_call& r, const blocks& parts) noexcept;
  static posted all_gather(const collective& c, const std::byte* block, std::byte* result,
                           const blocks& parts) noexcept;
  // `data` and `result` do not overlap.
  static posted all_to_all(const collective& c, const std::byte* data, std::byte* result,
                           const blocks& parts) noexcept;

  bool is_short() const noexcept { return bytes <= limit; }

  static constexpr std::size_t usual_limit = 32 * 1024;
  std::size_t bytes = 0;             // room for each rank, in bytes: the same on all
  std::size_t limit = usual_limit;   // of `bytes`, for one piece
  const std::byte* given = nullptr;  // what this rank writes
  std::size_t given_bytes = 0;
  const std::byte* own = nullptr;  // this rank's block of the result, perhaps in place; null: there is none
  bool gives_own = true;           // the others read it, too; otherwise a separate block is given to each
  int awaited = all;               // the rank that this one waits for
  reading what = reading::nothing;
  std::byte* to = nullptr;
  std::size_t offset = 0;  // in the data of the others
  std::size_t count = 0;   // elements of a reduction
  blocks parts{};          // of the data, by rank
  element_type type{};
  const detail::reduction* op = nullptr;  // outlives it
};

// What to publish for this call. Not short if the call takes more than one step.
posted posted_for(const detail::call& what, const collective& c) noexcept;

// Carries out the operation, in its turn.
task<> publish_on_segment(collective c, posted what);

// Carries out as much of an operation as it can at once, if that has the segment to itself from its start, and
// records whether this rank's part has been `written`. Returns true if the operation is complete; otherwise
// publish_rest() does what is left. Throws what a user's reduction throws.
bool publish_at_once(const collective& c, const posted& what, const publication& mine, bool& written);
task<> publish_rest(collective c, posted what, publication mine, bool written);

// Carries out what posted::broadcast, all_gather or all_to_all says, in the turn of an operation that has
// begun; short blocks in one piece. Ends when this rank has received everything and its own data are on the
// segment.
task<> copy_on_segment(collective c, const posted& what);

// Each rank stages a piece of every slice for the rank that reduces that slice. It reduces a piece of its own
// slice, and collects pieces of the others' results.
struct segment_reduction {
  reduce_call r;                // `input` is prepared
  blocks slices;                // of the input: slice r is reduced by rank r
  std::byte* result = nullptr;  // place of this rank's slice; null: only others want it
  bool shown = false;           // others want the results
  std::byte* all = nullptr;     // place of the whole result, own slice included; null: not wanted here
  bool alike = true;            // all ranks want the same of the results
};

// Carries out the reduction, in the turn of an operation that has begun. Ends when this rank has what it
// wants and has done its part for the others.
task<> reduce_on_segment(collective c, segment_reduction what);

}  // namespace tutti::coll
