// SPDX-License-Identifier: Apache-2.0
// Makes the coroutine of a call from its algorithm: the local steps around the algorithm, copies,
// accumulators of another type, and the new communicators of group, split and duplicate.
#include "coll/algorithms.hpp"
#include "coll/segment_steps.hpp"
#include "comm/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <tutti/scope.hpp>
#include <vector>

namespace tutti::coll {
namespace {

using detail::buffer_view;
using detail::call;
using detail::operation_state;
using kind = operation_kind;

std::byte* start_of(const buffer_view& b) noexcept { return static_cast<std::byte*>(b.data); }

// ---- blocks ----

// The positions of blocks: by `counts` in lent memory, or if there are none all `each` bytes long.
struct layout {
  layout(const collective& c, std::span<const std::size_t> counts, std::size_t element_bytes,
         std::size_t each)
      : memory(c.scratch().take(counts.size() * sizeof(std::size_t))), parts(blocks::even(each)) {
    if (counts.empty()) return;
    auto* const ends = reinterpret_cast<std::size_t*>(memory.data());
    std::size_t end = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) ends[i] = end += counts[i] * element_bytes;
    parts = blocks::uneven(ends);
  }
  comm::scratch_pool::lease memory;
  blocks parts;
};

task<> gather_body(const call* w, collective c, algorithm a) {
  const auto counts = c.rank() == w->peer ? w->out_counts : std::span<const std::size_t>();
  const layout out(c, counts, w->out.element_bytes, w->in.bytes());
  co_await coroutine_of<kind::gather>(a)(c, start_of(w->in), start_of(w->out), out.parts, w->peer);
}

task<> scatter_body(const call* w, collective c, algorithm a) {
  const auto counts = c.rank() == w->peer ? w->in_counts : std::span<const std::size_t>();
  const layout in(c, counts, w->in.element_bytes, w->out.bytes());
  co_await coroutine_of<kind::scatter>(a)(c, start_of(w->in), start_of(w->out), in.parts, w->peer);
}

task<> all_gather_body(const call* w, collective c, algorithm a) {
  const layout out(c, w->out_counts, w->out.element_bytes, w->in.bytes());
  co_await coroutine_of<kind::all_gather>(a)(c, start_of(w->in), start_of(w->out), out.parts);
}

task<> all_to_all_body(const call* w, collective c, algorithm a) {
  const std::size_t each = w->in.bytes() / static_cast<std::size_t>(c.size());
  const layout sent(c, w->in_counts, w->in.element_bytes, each);
  const layout received(c, w->out_counts, w->out.element_bytes, each);
  const bool in_place = w->in_counts.empty() && w->in.data == w->out.data;
  auto copy = c.scratch().take(in_place ? w->in.bytes() : 0);
  if (in_place) move_bytes(copy.data(), w->in.data, w->in.bytes());
  const std::byte* const from = in_place ? copy.data() : start_of(w->in);
  co_await coroutine_of<kind::all_to_all>(a)(c, from, sent.parts, start_of(w->out), received.parts);
}

// ---- reductions ----

// Such algorithms also finish what they reduce.
bool reduces_all_at_once(const collective& c, algorithm a) noexcept {
  return (a == algorithm::shared_memory && c.groups() == nullptr) || a == algorithm::direct ||
         a == algorithm::one_shot;
}

// The elements that the algorithms work on: the user's, or floats in place of halves.
struct accumulator {
  // Where all contributions are reduced at once, partial results of halves are never written. Factors are
  // applied before, to floats.
  accumulator(const collective& c, const call& w, algorithm a) noexcept
      : given(w.out.type),
        type(reduces_all_at_once(c, a) && w.op.kind != reduce_kind::premul_sum ? given
                                                                               : accumulator_of(w.op, given)),
        bytes(type == given ? w.out.element_bytes : sizeof(float)) {}
  bool same() const noexcept { return type == given; }
  // Loads this rank's prepared contribution.
  void load(const call& w, const void* from, void* to, std::size_t count) const noexcept {
    if (count == 0) return;
    if (same()) return prepare(w.op, type, from, to, count, bytes);
    current_kernels().widen(given, from, static_cast<float*>(to), count);
    prepare(w.op, type, to, to, count, bytes);
  }
  void store(const void* from, void* to, std::size_t count) const noexcept {
    if (count == 0) return;
    if (same()) {
      move_bytes(to, from, count * bytes);
    } else {
      current_kernels().narrow(given, static_cast<const float*>(from), to, count);
    }
  }
  element_type given;
  element_type type;
  std::size_t bytes;
};

bool is_prepared(const call& w) noexcept { return w.op.kind != reduce_kind::premul_sum; }

// Calls f(buffer, where it begins among all) for the buffers of the list, or for `only` if there is no list.
template <class F>
void for_each_piece(const call& w, const accumulator& elements, const buffer_view& only, F f) {
  if (w.list.at == nullptr) return f(only, 0);
  std::size_t at = 0;
  for (std::size_t i = 0; i < w.list.size; ++i) {
    const buffer_view piece = w.list.at(w.list.list, i);
    f(piece, at);
    at += piece.count * elements.bytes;
  }
}

task<> all_reduce_body(const call* w, collective c, algorithm a) {
  const accumulator elements(c, *w, a);
  const std::size_t count = w->out.count;
  const bool direct = elements.same() && w->list.at == nullptr;
  auto memory = c.scratch().take(direct ? 0 : count * elements.bytes);
  std::byte* const data = direct ? start_of(w->out) : memory.data();
  const bool in_as_it_is = direct && is_prepared(*w) && c.size() > 1;
  if (!in_as_it_is)
    for_each_piece(*w, elements, w->in, [&](const buffer_view& piece, std::size_t at) {
      elements.load(*w, piece.data, data + at, piece.count);
    });
  const std::byte* const input = in_as_it_is ? start_of(w->in) : data;
  if (c.size() > 1)  // else what was loaded is the result
    co_await coroutine_of<kind::all_reduce>(a)(
        c, reduce_call{data, input, count, elements.bytes, elements.type, w->op, c.size()});
  if (!direct)
    for_each_piece(*w, elements, w->out, [&](const buffer_view& piece, std::size_t at) {
      elements.store(data + at, piece.data, piece.count);
    });
}

// Of reduce and reduce_scatter.
task<> reduce_body(const call* w, collective c, algorithm a) {
  const accumulator elements(c, *w, a);
  const bool scatters = detail::row_of(w->kind).even == kind::reduce_scatter;
  const std::size_t own = scatters ? w->out.count : w->in.count;
  const layout in(c, w->in_counts, elements.bytes, own * elements.bytes);
  // The input stays unchanged: it can be used in place.
  const bool in_as_it_is = elements.same() && is_prepared(*w);
  auto memory = c.scratch().take(in_as_it_is ? 0 : w->in.count * elements.bytes);
  auto block = c.scratch().take(scatters && !elements.same() ? own * elements.bytes : 0);
  if (!in_as_it_is) elements.load(*w, w->in.data, memory.data(), w->in.count);
  const bool has_result = scatters || c.rank() == w->peer;
  std::byte* const result = has_result && elements.same() ? start_of(w->out)
                            : scatters                    ? block.data()
                            : in_as_it_is                 ? nullptr
                                                          : memory.data();
  const reduce_call r{result,        in_as_it_is ? start_of(w->in) : memory.data(),
                      w->in.count,   elements.bytes,
                      elements.type, w->op,
                      c.size()};
  if (scatters) {
    co_await coroutine_of<kind::reduce_scatter>(a)(c, r, in.parts);
  } else {
    co_await coroutine_of<kind::reduce>(a)(c, r, w->peer);
  }
  if (!has_result) co_return;
  if (!reduces_all_at_once(c, a)) finish(w->op, elements.type, result, own, c.size());
  if (!elements.same()) elements.store(result, w->out.data, own);
}

task<> scan_body(const call* w, collective c, algorithm a) {
  const accumulator elements(c, *w, a);
  const std::size_t count = w->in.count;
  const std::size_t bytes = count * elements.bytes;
  const bool exclusive = w->kind == kind::exclusive_scan;
  const bool direct = elements.same() && !exclusive;
  auto memory = c.scratch().take(direct ? 0 : bytes);
  auto before_memory = c.scratch().take(exclusive && !elements.same() ? bytes : 0);
  std::byte* const data = direct ? start_of(w->out) : memory.data();
  std::byte* const before = !exclusive ? nullptr : elements.same() ? start_of(w->out) : before_memory.data();
  elements.load(*w, w->in.data, data, count);
  co_await coroutine_of<kind::scan>(a)(
      c, reduce_call{data, data, count, elements.bytes, elements.type, w->op, c.size()}, before);
  if (elements.same()) co_return;
  if (!exclusive) {
    elements.store(data, w->out.data, count);
  } else if (c.rank() > 0) {
    elements.store(before, w->out.data, count);
  }
}

// ---- communicators ----

// Context numbers of communicators must differ where any two share a rank. The parent's rank 0 gives them
// out, from a sequence of its own (counter * size + rank): no two ranks ever give the same.
struct proposal {
  std::int32_t color;
  std::int32_t key;
  std::uint32_t id;
};

// Of group only rank 0's number is needed. But a rank that has heard from all others knows that all made the same
// call. In duplicate all ranks have one color and one key.
task<> communicator_body(operation_state* op, collective c) {
  const call& w = op->what();
  comm::world& world = comm::world_of(c.comm());
  const proposal mine{w.peer, w.tag, c.rank() == 0 ? world.next_communicator_id() : 0};
  auto memory = c.scratch().take(static_cast<std::size_t>(c.size()) * sizeof(proposal));
  const auto* const all = reinterpret_cast<const proposal*>(memory.data());
  co_await all_gather_bruck(c, reinterpret_cast<const std::byte*>(&mine), memory.data(),
                            blocks::even(sizeof(proposal)));
  // It has failed on another rank, which will not have the new communicator.
  if (c.comm().failure().ends(c.sequence())) throw error(c.comm().failure().why(), c.comm().failure().text());
  if (w.kind == kind::split && w.peer < 0) co_return;
  std::vector<int> ranks;
  if (w.kind == kind::group) {
    const std::span members(static_cast<const int*>(w.in.data), w.in.count);
    ranks.assign(members.begin(), members.end());
    if (std::ranges::find(ranks, c.rank()) == ranks.end()) co_return;
  } else {
    for (int r = 0; r < c.size(); ++r)
      if (all[r].color == w.peer) ranks.push_back(r);
    std::ranges::sort(ranks, {}, [all](int r) { return std::pair(all[r].key, r); });
  }
  for (int& rank : ranks) rank = c.comm().group().world_rank(rank);
  const std::uint32_t id = all[0].id;
  const std::string color = w.kind == kind::split ? fmt::format(".{}", w.peer) : "";
  const std::string name = fmt::format("{}/{}{}{}", c.comm().group().name(), name_of(w.kind), id, color);
  op->set_made(detail::communicator_ref(
      &world.make_agreed_communicator({id, c.comm().numbers().id, c.sequence()}, name, std::move(ranks))));
}

task<> body_of(operation_state* op, const collective& c, algorithm with) {
  const call& w = op->what();
  switch (detail::row_of(w.kind).even) {
    case kind::barrier:
      return coroutine_of<kind::barrier>(with)(c);
    case kind::broadcast:
      return coroutine_of<kind::broadcast>(with)(c, start_of(w.out), w.out.bytes(), w.peer);
    case kind::reduce:
    case kind::reduce_scatter:
      return reduce_body(&w, c, with);
    case kind::all_reduce:
      return all_reduce_body(&w, c, with);
    case kind::scatter:
      return scatter_body(&w, c, with);
    case kind::gather:
      return gather_body(&w, c, with);
    case kind::all_gather:
      return all_gather_body(&w, c, with);
    case kind::all_to_all:
      return all_to_all_body(&w, c, with);
    case kind::scan:
    case kind::exclusive_scan:
      return scan_body(&w, c, with);
    case kind::prepare:
      return barrier_dissemination(c);
    default:
      return communicator_body(op, c);
  }
}

// Runs in its turn; if no segments can be made, with another algorithm.
task<> on_segments(operation_state* op, collective c) {
  const bool two_levels = c.groups() != nullptr;
  comm::collective_segment& near = (two_levels ? c.near() : c).segment();
  comm::collective_segment::turn turn(near);
  std::optional<comm::collective_segment::turn> turn_across;
  if (two_levels) turn_across.emplace(c.across().segment());
  co_await turn;
  if (two_levels) co_await *turn_across;
  if (near.state() == comm::collective_segment::condition::unmade) co_await set_up_segments(c);
  const bool usable = near.state() == comm::collective_segment::condition::usable;
  if (usable) {
    if (!two_levels) near.begin(c.sequence(), c.print());  // else each step does
    co_await body_of(op, c, algorithm::shared_memory);
    if (!two_levels) near.finish();
  }
  turn.finish();
  if (two_levels) turn_across->finish();
  if (usable) co_return;
  situation s = situation_of(c.comm(), op->what());
  s.shared_memory = s.one_segment = false;
  co_await body_of(op, c, choose(s, algorithm::automatic));
}

// The ranks compare their calls, and find who has not called, while devices carry out the operation.
task<> on_devices(operation_state* op, collective c) {
  scope both;
  both.spawn(detail::executor_part_of(op->what()).execute(*op));
  both.spawn(barrier_dissemination(c));
  co_await both.join();
}

}  // namespace

task<> execute(operation_state& op, const collective& c, algorithm with) {
  if (op.what().on_device()) return on_devices(&op, c);
  return with == algorithm::shared_memory ? on_segments(&op, c) : body_of(&op, c, with);
}

}  // namespace tutti::coll
