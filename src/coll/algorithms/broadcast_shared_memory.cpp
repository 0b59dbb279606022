// SPDX-License-Identifier: Apache-2.0
// On a collective segment: the root writes, the others read, long vectors in rounds (coll/segment_copy.hpp).
// n bytes written, n read by each, one wait.
#include "coll/algorithms.hpp"
#include "coll/segment_copy.hpp"
#include "coll/segment_publish.hpp"

namespace tutti::coll {

task<> broadcast_shared_memory(collective c, void* data, std::size_t bytes, int root) {
  const posted all = posted::broadcast(c, data, bytes, root);
  if (all.is_short()) co_return co_await publish_on_segment(c, all);
  segment_movement what;
  what.root = root;
  what.given = static_cast<const std::byte*>(data);
  what.given_bytes = bytes;
  what.received = static_cast<std::byte*>(data);
  what.longest = bytes;
  co_await copy_on_segment(c, what);
}

}  // namespace tutti::coll
