// SPDX-License-Identifier: Apache-2.0
// The collectives for which rules choose algorithms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <tutti/tutti.hpp>
#include <vector>

namespace perf {

// As in rules, `bytes` is the size of the larger buffer.
struct buffers {
  buffers(int ranks, std::size_t bytes)
      : block(std::max<std::size_t>(1, bytes / sizeof(float) / static_cast<std::size_t>(ranks)), 1),
        whole(block.size() * static_cast<std::size_t>(ranks), 1),
        other(whole) {}
  std::vector<float> block, whole, other;
};

struct collective {
  const char* name;  // as in rules
  tutti::operation<> (*call)(const tutti::communicator& world, buffers& b);
};

#define TUTTI_PERF_CALL(expression) \
  [](const tutti::communicator& world, buffers& b) -> tutti::operation<> { return world.expression; }
inline constexpr collective collectives[] = {
    {"broadcast", TUTTI_PERF_CALL(broadcast(b.whole, 0))},
    {"reduce", TUTTI_PERF_CALL(reduce(b.whole, b.other, tutti::sum, 0))},
    {"all_reduce", TUTTI_PERF_CALL(all_reduce(b.whole, b.other, tutti::sum))},
    {"reduce_scatter", TUTTI_PERF_CALL(reduce_scatter(b.whole, b.block, tutti::sum))},
    {"scatter", TUTTI_PERF_CALL(scatter(b.whole, b.block, 0))},
    {"gather", TUTTI_PERF_CALL(gather(b.block, b.whole, 0))},
    {"all_gather", TUTTI_PERF_CALL(all_gather(b.block, b.whole))},
    {"all_to_all", TUTTI_PERF_CALL(all_to_all(b.whole, b.other))},
};
#undef TUTTI_PERF_CALL

}  // namespace perf
