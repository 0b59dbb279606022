// SPDX-License-Identifier: Apache-2.0
// On a collective segment: every rank writes its blocks for the others and reads theirs for it, long ones in
// rounds (coll/segment_copy.hpp). (P-1)/P n bytes written, as many read, one wait.
#include "coll/algorithms.hpp"
#include "coll/segment_copy.hpp"
#include "coll/segment_publish.hpp"

namespace tutti::coll {

task<> all_to_all_shared_memory(collective c, const void* data, blocks parts, void* result, blocks) {
  const posted all = posted::all_to_all(c, data, result, parts);
  if (all.is_short()) co_return co_await publish_on_segment(c, all);
  const std::size_t block_bytes = parts.bytes(c.rank());
  const auto* const from = static_cast<const std::byte*>(data);
  auto* const to = static_cast<std::byte*>(result);
  segment_movement what;
  what.to_each = true;
  what.given = from;
  what.received = to;
  what.parts = parts;
  what.longest = block_bytes;
  what.own_from = from + parts.begin(c.rank());
  what.own_to = to + parts.begin(c.rank());
  what.own_bytes = block_bytes;
  co_await copy_on_segment(c, what);
}

}  // namespace tutti::coll
