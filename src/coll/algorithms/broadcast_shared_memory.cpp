// SPDX-License-Identifier: Apache-2.0
// On a board: the root writes, the others read, long vectors in rounds (coll/board_movement.hpp). n bytes
// written, n read by each, one wait.
#include "coll/algorithms.hpp"
#include "coll/board_movement.hpp"
#include "coll/board_posting.hpp"

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
    co_await post_on_board(c, what);
    co_return;
  }
  board_movement what;
  what.root = root;
  what.given = static_cast<const std::byte*>(data);
  what.given_bytes = bytes;
  what.received = static_cast<std::byte*>(data);
  what.longest = bytes;
  co_await move_on_board(c, what);
}

}  // namespace tutti::coll
