// SPDX-License-Identifier: Apache-2.0
// Two levels of collective segments (comm/host_segments.hpp): each step is an operation among the ranks of a group, or
// of a column, by the algorithms for one segment.
#include "coll/algorithms.hpp"
#include "coll/cost.hpp"
#include "coll/segment_steps.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace tutti::coll {
namespace {

using comm::grouping;

// One operation on the segment of a level, whose turn the whole collective has.
template <class Make>
task<> step(collective level, Make make) {
  level.segment().begin(level.sequence(), level.print());
  co_await make();
  level.segment().finish();
}

// Ends of blocks, in lent memory.
class ends {
 public:
  ends(const collective& c, int blocks)
      : memory_(c.scratch().take(static_cast<std::size_t>(blocks) * sizeof(std::size_t))) {}
  void add(std::size_t bytes) noexcept {
    const std::size_t before = size_ == 0 ? 0 : data()[size_ - 1];
    data()[size_++] = before + bytes;
  }
  std::size_t all() const noexcept { return size_ == 0 ? 0 : data()[size_ - 1]; }
  blocks parts() const noexcept { return blocks::uneven(data()); }

 private:
  std::size_t* data() const noexcept { return reinterpret_cast<std::size_t*>(memory_.data()); }
  comm::scratch_pool::lease memory_;
  std::size_t size_ = 0;
};

// Steps only combine: the result is finished when all have been.
detail::reduction unfinished(const detail::reduction& op) {
  detail::reduction plain = op;
  if (plain.kind == reduce_kind::avg) plain.kind = reduce_kind::sum;
  return plain;
}

}  // namespace

// Two waits: for the group, and for a rank of each group.
task<> barrier_in_groups(collective c) {
  const collective near = c.near(), across = c.across();
  co_await step(near, [&] { return barrier_shared_memory(near); });
  co_await step(across, [&] { return barrier_shared_memory(across); });
}

// Along the root's column, and from there in each group, by pieces, so that a group reads one while the next crosses.
task<> broadcast_in_groups(collective c, std::byte* data, std::size_t bytes, int root) {
  using limits::collectives::piece_bytes;
  const collective near = c.near(), across = c.across();
  const grouping::place from = c.groups()->of(root), here = c.groups()->of(c.rank());
  const int source = here.group == from.group ? from.near : from.column;
  for (std::size_t at = 0; at < std::max<std::size_t>(bytes, 1); at += piece_bytes) {
    const std::size_t piece = std::min(piece_bytes, bytes - at);
    if (here.column == from.column)
      co_await step(across, [&] { return broadcast_shared_memory(across, data + at, piece, from.across); });
    co_await step(near, [&] { return broadcast_shared_memory(near, data + at, piece, source); });
  }
}

// Each group reduces to its rank of the root's column, and the column to the root.
task<> reduce_in_groups(collective c, reduce_call r, int root) {
  const collective near = c.near(), across = c.across();
  const grouping::place to = c.groups()->of(root), here = c.groups()->of(c.rank());
  const detail::reduction op = unfinished(r.op);
  const bool collects = here.near == to.column;
  auto memory = c.scratch().take(collects && r.data == nullptr ? r.count * r.element_bytes : 0);
  reduce_call group{collects && r.data == nullptr ? memory.data() : r.data,
                    r.input,
                    r.count,
                    r.element_bytes,
                    r.type,
                    op,
                    r.ranks};
  co_await step(near, [&] { return reduce_shared_memory(near, group, to.column); });
  if (here.column != to.column) co_return;
  reduce_call all = group;
  if (collects) all.input = group.data;
  co_await step(across, [&] { return reduce_shared_memory(across, all, to.across); });
}

namespace {

// The same on all ranks, whose groups may differ by one.
bool all_reduce_takes_whole(const collective& c, std::size_t bytes) noexcept {
  return !slices_pay(static_cast<double>(bytes), c.groups()->columns(), c.groups()->groups());
}

// Every rank of a group has the sum of the group, and reduces it with those of the others: (g-1 + P/g-1) n read.
task<> all_reduce_whole(collective c, reduce_call r) {
  const collective near = c.near(), across = c.across();
  const detail::reduction op = unfinished(r.op);
  reduce_call part{r.data, r.input, r.count, r.element_bytes, r.type, op, r.ranks};
  co_await step(near, [&] { return all_reduce_shared_memory(near, part); });
  part.input = r.data;
  co_await step(across, [&] { return all_reduce_shared_memory(across, part); });
  finish(r.op, r.type, r.data, r.count, r.ranks);
}

// Each rank of a group reduces a slice, which its column has in common: 2 n read, and 2 n/g more along the column.
task<> all_reduce_slices(collective c, reduce_call r) {
  const collective near = c.near(), across = c.across();
  const detail::reduction op = unfinished(r.op);
  const int columns = c.groups()->columns(), mine = c.groups()->of(c.rank()).column;
  const blocks whole = blocks::split(r.count, columns, r.element_bytes);
  ends slices(c, near.size());
  for (int i = 0; i < near.size(); ++i) slices.add(i < columns ? whole.bytes(i) : 0);
  std::byte* const slice = r.data + whole.begin(mine);
  const std::size_t count = whole.bytes(mine) / r.element_bytes;

  const reduce_call group{
      near.rank() == mine ? slice : r.data, r.input, r.count, r.element_bytes, r.type, op, r.ranks};
  co_await step(near, [&] { return reduce_scatter_shared_memory(near, group, slices.parts()); });
  const reduce_call column{slice, slice, count, r.element_bytes, r.type, op, r.ranks};
  co_await step(across, [&] { return all_reduce_shared_memory(across, column); });
  finish(r.op, r.type, slice, count, r.ranks);
  const std::byte* const own = r.data + slices.parts().begin(near.rank());
  co_await step(near, [&] { return all_gather_shared_memory(near, own, r.data, slices.parts()); });
}

}  // namespace

task<> all_reduce_in_groups(collective c, reduce_call r) {
  return all_reduce_takes_whole(c, r.count * r.element_bytes) ? all_reduce_whole(c, r)
                                                              : all_reduce_slices(c, r);
}

// Averages are finished after both steps, and halves widened before them: neither takes steps alone.
posted_steps steps_for(const detail::call& w, const collective& c) noexcept {
  posted_steps steps;
  auto* const out = static_cast<std::byte*>(w.out.data);
  const collective near = c.near(), across = c.across();
  if (w.kind == operation_kind::barrier) {
    steps.add(near, {});
    steps.add(across, {});
  } else if (w.kind == operation_kind::broadcast && w.out.bytes() <= posted::usual_limit) {
    const grouping::place from = c.groups()->of(w.peer), here = c.groups()->of(c.rank());
    if (here.column == from.column)
      steps.add(across, posted::broadcast(across, out, w.out.bytes(), from.across));
    steps.add(near, posted::broadcast(near, out, w.out.bytes(),
                                      here.group == from.group ? from.near : from.column));
  } else if (w.kind == operation_kind::all_reduce && w.list.at == nullptr &&
             w.op.kind != reduce_kind::premul_sum && w.op.kind != reduce_kind::avg &&
             accumulator_of(w.op, w.out.type) == w.out.type && all_reduce_takes_whole(c, w.out.bytes())) {
    reduce_call part{
        out,     static_cast<const std::byte*>(w.in.data), w.out.count, w.out.element_bytes, w.out.type, w.op,
        c.size()};
    const posted first = posted::reduce(near, part, {}, posted::all);
    part.input = out;
    const posted second = posted::reduce(across, part, {}, posted::all);
    if (!first.is_short() || !second.is_short()) return steps;
    steps.add(near, first);
    steps.add(across, second);
  }
  return steps;
}

// Each group gathers its blocks, and the columns exchange those of the groups: every block is written twice, and read
// once by each rank.
task<> all_gather_in_groups(collective c, const std::byte* block, std::byte* data, blocks parts) {
  const collective near = c.near(), across = c.across();
  const grouping& groups = *c.groups();
  // By the order of groups, which may not be that of ranks.
  auto memory = c.scratch().take(groups.in_rank_order() ? 0 : parts.bytes(0, c.size()));
  std::byte* all = groups.in_rank_order() ? data : memory.data();
  ends of_group(c, near.size()), of_column(c, across.size());
  const int mine = groups.of(c.rank()).group;
  for (int g = 0; g < groups.groups(); ++g) {
    std::size_t bytes = 0;
    for (const int rank : groups.group(g)) {
      bytes += parts.bytes(rank);
      if (g == mine) of_group.add(parts.bytes(rank));
    }
    of_column.add(bytes);
  }
  for (int taker = groups.groups(); taker < across.size(); ++taker) of_column.add(0);
  std::byte* const group = all + of_column.parts().begin(mine);
  co_await step(near, [&] { return all_gather_shared_memory(near, block, group, of_group.parts()); });
  const std::byte* const given = across.rank() < groups.groups() ? group : all + of_column.all();
  co_await step(across, [&] { return all_gather_shared_memory(across, given, all, of_column.parts()); });
  if (all == data) co_return;
  for (const int rank : groups.order()) {
    move_bytes(data + parts.begin(rank), all, parts.bytes(rank));
    all += parts.bytes(rank);
  }
}

// Each rank of a group reduces the blocks of its column's ranks, and the column reduces each to its rank. The input is
// copied in the order of columns.
task<> reduce_scatter_in_groups(collective c, reduce_call r, blocks parts) {
  const collective near = c.near(), across = c.across();
  const grouping& groups = *c.groups();
  const detail::reduction op = unfinished(r.op);
  const int mine = groups.of(c.rank()).column;
  auto memory = c.scratch().take(r.count * r.element_bytes);
  ends of_group(c, near.size()), of_column(c, across.size());
  std::byte* to = memory.data();
  for (int column = 0; column < groups.columns(); ++column) {
    std::size_t bytes = 0;
    for (int i = 0; i < groups.size_of_column(column); ++i) {
      const int rank = groups.rank_at(column, i);
      move_bytes(to + bytes, r.input + parts.begin(rank), parts.bytes(rank));
      bytes += parts.bytes(rank);
      if (column == mine) of_column.add(parts.bytes(rank));
    }
    of_group.add(bytes);
    to += bytes;
  }
  for (int taker = groups.columns(); taker < near.size(); ++taker) of_group.add(0);
  std::byte* const column = memory.data() + of_group.parts().begin(mine);
  const std::size_t count = of_column.all() / r.element_bytes;

  const reduce_call first{
      near.rank() == mine ? column : to, memory.data(), r.count, r.element_bytes, r.type, op, r.ranks};
  co_await step(near, [&] { return reduce_scatter_shared_memory(near, first, of_group.parts()); });
  const reduce_call second{r.data, column, count, r.element_bytes, r.type, op, r.ranks};
  co_await step(across, [&] { return reduce_scatter_shared_memory(across, second, of_column.parts()); });
}

}  // namespace tutti::coll
