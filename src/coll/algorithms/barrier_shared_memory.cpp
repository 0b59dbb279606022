// SPDX-License-Identifier: Apache-2.0
// Everyone says on the board that it has come, and looks for the others: one line written, P-1 read.
#include "coll/algorithms.hpp"
#include "coll/board_posting.hpp"

namespace tutti::coll {

task<> barrier_shared_memory(collective c) { return post_on_board(c, posted{}); }

}  // namespace tutti::coll
