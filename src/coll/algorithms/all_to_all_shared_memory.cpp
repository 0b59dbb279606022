// SPDX-License-Identifier: Apache-2.0
// On a collective segment: every rank writes its blocks for the others and reads theirs for it, long ones in
// rounds (coll/segment_copy.hpp). (P-1)/P n bytes written, as many read, one wait.
#include "coll/algorithms.hpp"
#include "coll/move_bytes.hpp"
#include "coll/segment_copy.hpp"
#include "coll/segment_publish.hpp"

namespace tutti::coll {

task<> all_to_all_shared_memory(collective c, const void* data, blocks parts, void* result, blocks) {
  const std::size_t block_bytes = parts.bytes(c.rank());
  const auto* const from = static_cast<const std::byte*>(data);
  auto* const to = static_cast<std::byte*>(result);
  const std::size_t all = block_bytes * static_cast<std::size_t>(c.size());
  if (all <= most_in_one_posting) {
    move_bytes(to + parts.begin(c.rank()), from + parts.begin(c.rank()), block_bytes);
    posted what;
    what.bytes = what.given_bytes = all;
    what.given = from;
    what.what = posted::reading::blocks_of_all;
    what.to = to;
    what.offset = parts.begin(c.rank());
    what.parts = parts;
    co_await publish_on_segment(c, what);
    co_return;
  }
  segment_movement what;
  what.to_each = true;
  what.given = from;
  what.given_parts = parts;
  what.received = to;
  what.received_parts = parts;
  what.longest = block_bytes;
  what.own_from = from + parts.begin(c.rank());
  what.own_to = to + parts.begin(c.rank());
  what.own_bytes = block_bytes;
  co_await copy_on_segment(c, what);
}

}  // namespace tutti::coll
