// SPDX-License-Identifier: Apache-2.0
// On a collective segment: the root writes, the others read, long vectors in rounds (coll/segment_copy.hpp).
// n bytes written, n read by each, one wait.
#include "coll/algorithms.hpp"
#include "coll/segment_copy.hpp"

namespace tutti::coll {

task<> broadcast_shared_memory(collective c, void* data, std::size_t bytes, int root) {
  return copy_on_segment(c, posted::broadcast(c, data, bytes, root));
}

}  // namespace tutti::coll
