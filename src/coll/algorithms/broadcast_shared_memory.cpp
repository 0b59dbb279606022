// SPDX-License-Identifier: Apache-2.0
// On a collective segment: the root writes, the others read, long vectors in rounds (coll/segment_copy.hpp).
// n bytes written, n read by each, one wait.
#include "coll/algorithms.hpp"
#include "coll/segment_copy.hpp"
#include "coll/segment_publish.hpp"

namespace tutti::coll {

task<> broadcast_shared_memory(collective c, void* data, std::size_t bytes, int root) {
  if (bytes <= most_in_one_posting) {
    posted what;
    what.bytes = what.count = bytes;
    what.given = what.to = data;
    if (c.rank() == root) {
      what.given_bytes = bytes;
      what.awaited = posted::nobody;
    } else {
      what.awaited = root;
      what.what = posted::reading::one_block;
    }
    co_await publish_on_segment(c, what);
    co_return;
  }
  segment_movement what;
  what.root = root;
  what.given = static_cast<const std::byte*>(data);
  what.given_bytes = bytes;
  what.received = static_cast<std::byte*>(data);
  what.longest = bytes;
  co_await copy_on_segment(c, what);
}

}  // namespace tutti::coll
