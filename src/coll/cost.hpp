// SPDX-License-Identifier: Apache-2.0
// The cost model: how long a collective takes by each algorithm, from its steps and some constants of links and
// caches. coll/choice.cpp takes the algorithm of the least cost, and tutti::sim forecasts by the same formulas.
//
// Only what all ranks share enters, and nothing but + - * / and comparisons: every rank computes the same bits.
#pragma once

#include "base/limits.hpp"
#include "comm/collective_segment.hpp"

#include <array>
#include <cstddef>
#include <tutti/algorithm.hpp>
#include <tutti/detail/operation_state.hpp>
#include <utility>

namespace tutti::coll {

using detail::operation_kind;

// What messages take. Times are in nanoseconds.
struct link_costs {
  double latency = 0;
  double overhead = 0;  // of a processor, for each frame sent or received
  double gap = 0;       // least time between two frames of a rank
  double byte = 0;
  double copied_byte = 0;  // of a copy inside a rank
  double header_bytes = 0;
  double eager_limit = 0;  // longer messages take a round trip more
};

// Measured with a core for each rank (perf/NOTES.md): messages through shared memory, through TCP on one host, and
// through TCP between hosts at 25 Gbit/s.
inline constexpr link_costs shared_memory_links{90, 120, 0, 0.12, 0.1, 64, 64 * 1024};
inline constexpr link_costs loopback_links{800, 2500, 0, 0.33, 0.1, 64, 256 * 1024};
inline constexpr link_costs network_links{20'000, 2500, 0, 0.32, 0.1, 64, 256 * 1024};

struct cost {
  double time = 0;  // negative: there is no formula
  double connections = 0;
};

// Of `ranks` ranks, 2 or more, that are equal and start together; reductions cost nothing. `bytes`: of a rank's whole
// vector; for blocks, of the largest buffer.
cost cost_of(operation_kind kind, algorithm with, double bytes, int ranks, const link_costs& links) noexcept;

// ---- collective segments ----

// Times of 2 to 16 ranks on 16 cores of an Intel Xeon (perf/NOTES.md), in nanoseconds.
struct segment_costs {
  double arrival = 250;     // of a wait for all
  double rank = 65;         // of that, for each rank
  double read_byte = 0.16;  // which another core has written
  double rounds = 1000;     // what rounds take before the first piece
  double piece = 120;       // for a piece of each rank: two lines
};
inline constexpr segment_costs segment_ns;

// An all_reduce in which every rank reads and reduces the whole vectors of all; and one in rounds, in which each
// reduces a slice and collects those of the others.
constexpr double whole_cost(double bytes, int ranks) noexcept {
  const double n = ranks;
  return segment_ns.arrival + n * segment_ns.rank + (n - 1) * bytes * segment_ns.read_byte;
}
constexpr double rounds_cost(double bytes, int ranks) noexcept {
  const double n = ranks;
  return 2 * (segment_ns.arrival + n * segment_ns.rank) + segment_ns.rounds + n * segment_ns.piece +
         2 * (n - 1) / n * bytes * segment_ns.read_byte;
}
// Up to so many bytes, whole vectors cost less; of two ranks, each reads as much either way.
inline constexpr auto whole_limits = [] {
  std::array<std::size_t, comm::collective_segment::most_ranks + 1> all{};
  for (int ranks = 2; std::cmp_less(ranks, all.size()); ++ranks) {
    const double start = rounds_cost(0, ranks) - whole_cost(0, ranks);
    const double byte = start - rounds_cost(1, ranks) + whole_cost(1, ranks);
    const double longest = limits::collectives::exchange_limit;
    all[static_cast<std::size_t>(ranks)] =
        static_cast<std::size_t>(start < byte * longest ? start / byte : longest);
  }
  return all;
}();
constexpr double all_reduce_cost(double bytes, int ranks) noexcept {
  const double whole = whole_cost(bytes, ranks), rounds = rounds_cost(bytes, ranks);
  return whole < rounds ? whole : rounds;
}

// In two levels: groups reduce all to each of their ranks, and columns again; or each column reduces a slice, and groups
// collect the slices.
constexpr bool slices_pay(double bytes, int group, int groups) noexcept {
  const double g = group;
  const double slices = 2 * (segment_ns.arrival + g * segment_ns.rank + segment_ns.rounds) +
                        2 * (g - 1) / g * bytes * segment_ns.read_byte + all_reduce_cost(bytes / g, groups);
  return slices < all_reduce_cost(bytes, group) + all_reduce_cost(bytes, groups);
}

}  // namespace tutti::coll
