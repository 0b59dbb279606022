// SPDX-License-Identifier: Apache-2.0
// The algorithms of collectives: a file in coll/algorithms/ and a row for each collective here.
//
// all_reduce_* takes prepared data and returns finished data. The callers of the other reductions finish
// them, except those on one collective segment (*_shared_memory). These also take halves as they are and round
// them once.
#pragma once

#include "coll/choice.hpp"
#include "coll/collective.hpp"
#include "coll/reduce.hpp"

#include <cstddef>
#include <cstdlib>
#include <tutti/reduce_op.hpp>
#include <tutti/task.hpp>

namespace tutti::coll {

// The arguments of a reduction. This rank's contribution is at `input`, the result goes to `data`. The two
// may be the same; otherwise they do not overlap. `data` may be null only for a reduce, on ranks other than
// the root. If it is not null there, the algorithm may overwrite it.
struct reduce_call {
  // For algorithms that work in place.
  void copy_input() noexcept {
    move_bytes(data, input, count * element_bytes);
    input = data;
  }
  std::byte* data;
  const std::byte* input;
  std::size_t count;  // elements
  std::size_t element_bytes;
  element_type type;
  const detail::reduction& op;
  int ranks;  // the number of contributions, by which avg divides
};

// The parameters of each collective's algorithms. Every buffer is where the call has it. Of a scatter and a
// gather, ranks other than the root may know only their own block of `parts`.
namespace algorithm_form {

using barrier = task<>(collective c);
using broadcast = task<>(collective c, std::byte* data, std::size_t bytes, int root);
using reduce = task<>(collective c, reduce_call r, int root);
using all_reduce = task<>(collective c, reduce_call r);
using scatter = task<>(collective c, const std::byte* data, std::byte* block, blocks parts, int root);
using gather = task<>(collective c, const std::byte* block, std::byte* data, blocks parts, int root);
using all_gather = task<>(collective c, const std::byte* block, std::byte* data, blocks parts);
// `r.data` is this rank's block, which may be its place in the input.
using reduce_scatter = task<>(collective c, reduce_call r, blocks parts);
// `data` and `result` do not overlap.
using all_to_all = task<>(collective c, const std::byte* data, blocks out_parts, std::byte* result,
                          blocks in_parts);
// `before` null: inclusive.
using scan = task<>(collective c, reduce_call r, std::byte* before);
using exclusive_scan = scan;

}  // namespace algorithm_form

// The rows, grouped by kind in the order of kinds. A row has needs, and says when the algorithm is chosen: `first(ranks,
// bytes)`: always, with that many ranks or more and at most so many bytes; `cheapest`: if no row before it is always
// chosen, and it costs least (coll/cost.hpp). The rows of a kind are in the order of preference.
// clang-format off
#define TUTTI_ALGORITHM_ROWS(ROW)                                                                                    \
/*    kind            name                coroutine                      needs           when                 */     \
  ROW(barrier,        shared_memory,      barrier_shared_memory,         segment,        first())                    \
  ROW(barrier,        hierarchical,       barrier_hierarchical,          hierarchy,      first())                    \
  ROW(barrier,        dissemination,      barrier_dissemination,         nothing,        cheapest)                   \
                                                                                                                     \
  ROW(broadcast,      shared_memory,      broadcast_shared_memory,       segment,        first())                    \
  ROW(broadcast,      hierarchical,       broadcast_hierarchical,        hierarchy,      first())                    \
  ROW(broadcast,      binomial,           broadcast_binomial,            nothing,        cheapest)                   \
  ROW(broadcast,      scatter_all_gather, broadcast_scatter_all_gather,  nothing,        cheapest)                   \
  ROW(broadcast,      ring,               broadcast_ring,                nothing,        cheapest)                   \
                                                                                                                     \
  ROW(reduce,         shared_memory,      reduce_shared_memory,          segment,        first())                    \
  ROW(reduce,         hierarchical,       reduce_hierarchical,           hierarchy,      first())                    \
  ROW(reduce,         binomial,           reduce_binomial,               nothing,        cheapest)                   \
  ROW(reduce,         ring,               reduce_ring,                   nothing,        cheapest)                   \
                                                                                                                     \
  ROW(all_reduce,     shared_memory,      all_reduce_shared_memory,      segment,        first())                    \
  ROW(all_reduce,     hierarchical,       all_reduce_hierarchical,       hierarchy,      first(0, 64 * KiB))         \
  ROW(all_reduce,     hierarchical_split, all_reduce_hierarchical_split, even_hierarchy, first())                    \
  ROW(all_reduce,     hierarchical,       all_reduce_hierarchical,       hierarchy,      first())                    \
  ROW(all_reduce,     ring,               all_reduce_ring,               nothing,        cheapest)                   \
  ROW(all_reduce,     recursive_doubling, all_reduce_recursive_doubling, nothing,        cheapest)                   \
  ROW(all_reduce,     rabenseifner,       all_reduce_rabenseifner,       nothing,        cheapest)                   \
  ROW(all_reduce,     direct,             all_reduce_direct,             nothing,        cheapest)                   \
  ROW(all_reduce,     one_shot,           all_reduce_one_shot,           nothing,        cheapest)                   \
                                                                                                                     \
  ROW(scatter,        linear,             scatter_linear,                nothing,        cheapest)                   \
  ROW(scatter,        binomial,           scatter_binomial,              even_blocks,    cheapest)                   \
  ROW(gather,         linear,             gather_linear,                 nothing,        cheapest)                   \
  ROW(gather,         binomial,           gather_binomial,               even_blocks,    cheapest)                   \
                                                                                                                     \
  ROW(all_gather,     shared_memory,      all_gather_shared_memory,      segment,        first())                    \
  ROW(all_gather,     ring,               all_gather_ring,               nothing,        cheapest)                   \
  ROW(all_gather,     bruck,              all_gather_bruck,              even_blocks,    cheapest)                   \
                                                                                                                     \
  ROW(reduce_scatter, shared_memory,      reduce_scatter_shared_memory,  segment,        first())                    \
  ROW(reduce_scatter, ring,               reduce_scatter_ring,           nothing,        cheapest)                   \
  ROW(reduce_scatter, direct,             reduce_scatter_direct,         nothing,        cheapest)                   \
  ROW(reduce_scatter, bruck,              reduce_scatter_bruck,          nothing,        cheapest)                   \
                                                                                                                     \
  ROW(all_to_all,     shared_memory,      all_to_all_shared_memory,      one_segment,    first(3))                   \
  ROW(all_to_all,     shared_memory,      all_to_all_shared_memory,      one_segment,    first(0, 64 * KiB))         \
  ROW(all_to_all,     pairwise,           all_to_all_pairwise,           nothing,        cheapest)                   \
  ROW(all_to_all,     bruck,              all_to_all_bruck,              even_blocks,    cheapest)                   \
                                                                                                                     \
  ROW(scan,           recursive_doubling, scan_recursive_doubling,       nothing,        cheapest)                   \
  ROW(exclusive_scan, recursive_doubling, scan_recursive_doubling,       nothing,        cheapest)
// clang-format on

#define TUTTI_DECLARE(kind, name, coroutine, ...) algorithm_form::kind coroutine;
TUTTI_ALGORITHM_ROWS(TUTTI_DECLARE)
#undef TUTTI_DECLARE

// The coroutine of an algorithm that the collective has.
template <operation_kind Kind>
auto* coroutine_of(algorithm a) noexcept {
#define TUTTI_FIND(kind, name, coroutine, ...) \
  if constexpr (Kind == operation_kind::kind)  \
    if (a == algorithm::name) return &coroutine;
  TUTTI_ALGORITHM_ROWS(TUTTI_FIND)
#undef TUTTI_FIND
  std::abort();
}

// What the algorithms on collective segments are where these have two levels (coll/algorithms/groups.cpp).
algorithm_form::barrier barrier_in_groups;
algorithm_form::broadcast broadcast_in_groups;
algorithm_form::reduce reduce_in_groups;
algorithm_form::all_reduce all_reduce_in_groups;
algorithm_form::all_gather all_gather_in_groups;
algorithm_form::reduce_scatter reduce_scatter_in_groups;

// Passes all blocks round a ring; shared by several algorithms. The block that this rank has in place is
// `own`: its own number, or any that is one more than the left neighbour's. A `root` has all blocks, so that
// nothing is sent to it; -1: there is none.
task<> pass_blocks_round(collective c, std::byte* data, blocks parts, int own, int root = -1);

// Every rank sends its `bytes` bytes to every other one directly. Those of rank r arrive at `all` + r * bytes;
// the own ones are not copied there.
task<> tell_all(collective c, const void* mine, std::size_t bytes, void* all);

// The coroutine of a call: the local steps around its algorithm, and the algorithm. It refers to `op` until it
// ends.
task<> execute(detail::operation_state& op, const collective& c, algorithm with);

}  // namespace tutti::coll
