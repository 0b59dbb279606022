// SPDX-License-Identifier: Apache-2.0
// On a collective segment: every rank writes its block and reads those of the others, long ones in rounds
// (coll/segment_copy.hpp). n/P bytes written, (P-1)/P n read, one wait.
#include "base/shared_memory.hpp"
#include "coll/algorithms.hpp"
#include "coll/segment_copy.hpp"
#include "coll/segment_publish.hpp"

namespace tutti::coll {

task<> all_gather_shared_memory(collective c, const void* block, void* data, blocks parts) {
  const posted whole = posted::all_gather(c, block, data, parts);
  if (whole.is_short()) co_return co_await publish_on_segment(c, whole);
  auto* const all = static_cast<std::byte*>(data);
  const auto* const given = static_cast<const std::byte*>(block);
  std::byte* const own = all + parts.begin(c.rank());
  const std::size_t own_bytes = parts.bytes(c.rank());
  // If all ranks can read the results, this rank's block is given from there.
  const bool later =
      !overlap(given, own_bytes, all, parts.begin(c.size())) && !base::find_shared(own, own_bytes);
  if (!later) move_bytes(own, given, own_bytes);
  segment_movement what;
  what.given = later ? given : own;
  what.given_bytes = own_bytes;
  what.own_from = given;
  what.own_to = own;
  what.own_bytes = later ? own_bytes : 0;
  what.received = all;
  what.parts = parts;
  what.longest = whole.bytes;
  co_await copy_on_segment(c, what);
}

}  // namespace tutti::coll
