// SPDX-License-Identifier: Apache-2.0
// Operations with few bytes on a collective segment. Every giving rank writes all of its data in one piece. A
// receiving rank waits for the ranks that it reads from, and reads. There is one wait, which often ends
// before the loop's next turn.
#pragma once

#include "coll/blocks.hpp"
#include "coll/collective.hpp"
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

  static posted broadcast(const collective& c, void* data, std::size_t bytes, int root) noexcept;
  // `op` outlives it. Root -1: all ranks get the result.
  static posted reduce(const collective& c, const void* input, void* result, std::size_t count,
                       std::size_t element_bytes, element_type type, const detail::reduction& op,
                       int root) noexcept;
  static posted reduce_scatter(const collective& c, const void* input, void* result, std::size_t count,
                               std::size_t element_bytes, element_type type, const detail::reduction& op,
                               const blocks& parts) noexcept;
  static posted all_gather(const collective& c, const void* block, void* result,
                           const blocks& parts) noexcept;
  // `data` and `result` do not overlap.
  static posted all_to_all(const collective& c, const void* data, void* result, const blocks& parts) noexcept;

  bool is_short() const noexcept { return bytes <= limit; }

  std::size_t bytes = 0;          // room for each rank, in bytes: the same on all
  std::size_t limit = 32 * 1024;  // of `bytes`, for one piece
  const void* given = nullptr;    // what this rank writes
  std::size_t given_bytes = 0;
  const void* own = nullptr;  // this rank's block of the result, perhaps in place; null: there is none
  bool gives_own = true;      // the others read it, too
  int awaited = all;          // the rank that this one waits for
  reading what = reading::nothing;
  void* to = nullptr;
  std::size_t offset = 0;  // in the data of the others
  std::size_t count = 0;   // elements of a reduction; bytes of one block
  blocks parts;            // of the data, by rank
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

}  // namespace tutti::coll
