// SPDX-License-Identifier: Apache-2.0
// Which algorithm a collective uses: one table, by bytes and ranks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::coll {

enum class all_reduce_algorithm : std::uint8_t { recursive_doubling = 1, ring = 2 };

// From the table, or TUTTI_ALL_REDUCE=recursive_doubling|ring where set (the same on all ranks, as the fingerprint of
// the collective checks). Throws tutti::error for any other value.
all_reduce_algorithm choose_all_reduce(std::size_t bytes, int ranks);

}  // namespace tutti::coll
