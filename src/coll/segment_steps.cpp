// SPDX-License-Identifier: Apache-2.0
#include "coll/segment_steps.hpp"

#include "base/ring_copy.hpp"
#include "coll/cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace tutti::coll {
namespace {

using comm::collective_segment;
using kind = detail::operation_kind;

using limits::collectives::exchange_limit;
using limits::collectives::own_blocks_limit;
// In bytes, so that the loop gets its turn.
constexpr std::size_t most_read = 512 * 1024;

void write(const collective& c, const posted& p, const publication& mine) noexcept {
  collective_segment& segment = c.segment();
  if (p.gives_own) {
    if (p.given_bytes > 0) segment.write(mine.data(), p.given, p.given_bytes);
  } else {
    const std::size_t begin = p.parts.begin(c.rank()), end = p.parts.begin(c.rank() + 1);
    if (begin > 0) segment.write(mine.data(), p.given, begin);
    if (end < p.given_bytes) segment.write(mine.data() + end, p.given + end, p.given_bytes - end);
  }
  segment.arrive();
  if (p.own != nullptr) move_bytes(p.to + p.parts.begin(c.rank()), p.own, p.parts.bytes(c.rank()));
}

void read(const collective& c, const posted& p, const publication& mine) {
  if (p.awaited == posted::nobody || p.to == nullptr) return;
  if (p.op != nullptr) {
    const auto input = [&](int r) { return (r == c.rank() ? p.given : mine.of(r)) + p.offset; };
    if (p.count > 0) reduce_of_ranks(c, *p.op, p.type, input, p.to, p.count);
  } else if (p.awaited >= 0) {
    base::copy_out(p.to, mine.of(p.awaited), p.bytes);
  } else {
    for (int r = 0; r < c.size(); ++r) {
      const std::size_t bytes = p.parts.bytes(r);
      if (r != c.rank() && bytes > 0) base::copy_out(p.to + p.parts.begin(r), mine.of(r) + p.offset, bytes);
    }
  }
}

// Does what is left when this rank's part has been `written`, or everything.
task<> post(collective c, posted what, publication mine, bool written) {
  if (!written) {
    co_await room_to_write(c, mine.end());
    write(c, what, mine);
  }
  if (what.awaited != posted::nobody) {
    arrivals others(c, what.awaited);
    co_await others;
    others.check();
  }
  read(c, what, mine);
}

// ---- data in memory of tutti::shared_allocator ----

// The contents of the slot of an operation.
struct shown {
  collective_segment::location data;
  collective_segment::location results;
};
static_assert(sizeof(shown) <= collective_segment::slot_payload);

constexpr std::uint64_t nothing_to_read = ~std::uint64_t{0};

collective_segment::location show(collective_segment& b, std::span<const std::byte> bytes) noexcept {
  return bytes.empty() ? collective_segment::location{nothing_to_read, 0}
                       : b.show(bytes.data(), bytes.size());
}

// Waits until has(rank) is true of every other rank.
template <class Has>
auto every_other(const collective& c, Has has) noexcept {
  return until(c, [&c, has, next = 0]() mutable {
    for (; next < c.size(); ++next)
      if (next != c.rank() && !has(next)) return next;
    return -1;
  });
}

}  // namespace

namespace {

// Returns whether this rank reaches the parts of all. Every rank tells every other one directly: afterwards any two are
// connected.
task<bool> connect_segment(collective c) {
  collective_segment& b = c.segment();
  const collective_segment::handle mine = b.make_part();
  std::array<collective_segment::handle, collective_segment::most_ranks> handles{};
  co_await tell_all(c, &mine, sizeof mine, handles.data());
  std::uint8_t good = b.show_part() ? 1 : 0;
  // When this arrives, the shown parts are there.
  std::array<std::uint8_t, collective_segment::most_ranks> all{};
  co_await tell_all(c, &good, sizeof good, all.data());
  for (int r = 0; r < c.size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (r != c.rank() && (all[i] == 0 || !b.find_part(r, handles[i]))) good = 0;
  }
  co_return good != 0;
}

task<bool> good_on_all(collective c, bool good) {
  const std::uint8_t mine = good ? 1 : 0;
  std::array<std::uint8_t, collective_segment::most_ranks> all{};
  all[static_cast<std::size_t>(c.rank())] = mine;
  co_await tell_all(c, &mine, sizeof mine, all.data());
  co_return std::all_of(all.begin(), all.begin() + c.size(), [](std::uint8_t ok) { return ok != 0; });
}

}  // namespace

task<> set_up_segments(collective c) {
  const bool two_levels = c.groups() != nullptr;
  const collective near = two_levels ? c.near() : c;
  bool good = co_await connect_segment(near);
  if (two_levels) {
    const bool good_across = co_await connect_segment(c.across());
    good = good && good_across;
  }
  good = co_await good_on_all(near, good);
  if (two_levels) {
    good = co_await good_on_all(c.across(), good);
    c.across().segment().decide(good);
  }
  near.segment().decide(good);
}

void arrivals::refuse() const {
  const collective_segment& b = c_.segment();
  const int rank = mismatched_;
  const std::string theirs =
      b.sequence_of(rank) == c_.sequence() ? "" : fmt::format(" (its collective #{})", b.sequence_of(rank));
  throw error(errc::mismatch, c_.comm().progress().mismatch_text(c_.rank_in_world(rank), c_.sequence(),
                                                                 c_.print(), b.fingerprint_of(rank)) +
                                  theirs);
}

task<> publish_on_segment(collective c, posted what) {
  return post(c, what, publication(c, what.bytes), false);
}

bool publish_at_once(const collective& c, const posted& what, const publication& mine, bool& written) {
  collective_segment& segment = c.segment();
  if (what.awaited == posted::nobody) {
    // Also counts towards the loop's next turn: nothing else would give it one.
    auto room = room_to_write(c, mine.end());
    if (!segment.poll(room)) return false;
    write(c, what, mine);
    return true;
  }
  if (segment.room_for(mine.end()) >= 0) return false;
  write(c, what, mine);
  written = true;
  arrivals others(c, what.awaited);
  if (!segment.poll(others) || others.found_mismatch()) return false;
  read(c, what, mine);
  return true;
}

task<> publish_rest(collective c, posted what, publication mine, bool written) {
  collective_segment& b = c.segment();
  collective_segment::turn turn(b);  // the turn has come
  co_await post(c, what, mine, written);
  b.finish();
  turn.finish();
}

task<> publish_rest_of_steps(posted_steps steps, std::size_t at, publication mine, bool written) {
  // The turns have come; that of a step behind is harmless.
  collective_segment::turn first(steps.all.front()->on.segment());
  std::optional<collective_segment::turn> second;
  if (steps.has(1)) second.emplace(steps.all.back()->on.segment());
  for (;;) {
    const auto& [on, what] = *steps.all[at];
    co_await post(on, what, mine, written);
    on.segment().finish();
    if (!steps.has(++at)) break;
    const auto& [next, then] = *steps.all[at];
    next.segment().begin(next.sequence(), next.print());
    mine = publication(next, then.bytes);
    written = false;
  }
  first.finish();
  if (second) second->finish();
}

posted posted::broadcast(const collective& c, std::byte* data, std::size_t bytes, int root) noexcept {
  const bool is_root = c.rank() == root;
  return {.bytes = bytes,
          .given = data,
          .given_bytes = is_root ? bytes : 0,
          .awaited = is_root ? nobody : root,
          .to = data};
}

posted posted::reduce(const collective& c, const reduce_call& r, const blocks& slices, int root) noexcept {
  const bool is_root = c.rank() == root, scatters = root == nobody;
  const std::size_t bytes = r.count * r.element_bytes;
  return {.bytes = bytes,
          .limit = scatters    ? own_blocks_limit
                   : root >= 0 ? usual_limit
                               : whole_limits[static_cast<std::size_t>(c.size())],
          .given = r.input,
          .given_bytes = is_root ? 0 : bytes,
          .gives_own = !scatters,
          .awaited = root < 0 || is_root ? all : nobody,
          .to = r.data,
          .offset = scatters ? slices.begin(c.rank()) : 0,
          .count = scatters ? slices.bytes(c.rank()) / r.element_bytes : r.count,
          .parts = slices,
          .type = r.type,
          .op = &r.op};
}

posted posted::all_gather(const collective& c, const std::byte* block, std::byte* result,
                          const blocks& parts) noexcept {
  return {.bytes = parts.longest(c.size()),
          .limit = std::min(exchange_limit, most_read / static_cast<std::size_t>(c.size() - 1)),
          .given = block,
          .given_bytes = parts.bytes(c.rank()),
          .own = block,
          .to = result,
          .parts = parts};
}

posted posted::all_to_all(const collective& c, const std::byte* data, std::byte* result,
                          const blocks& parts) noexcept {
  const std::size_t bytes = parts.begin(c.size()), offset = parts.begin(c.rank());
  return {.bytes = bytes,
          .limit = own_blocks_limit,
          .given = data,
          .given_bytes = bytes,
          .own = data + offset,
          .gives_own = false,
          .to = result,
          .offset = offset,
          .parts = parts};
}

posted posted_for(const detail::call& w, const collective& c) noexcept {
  auto* const in = static_cast<std::byte*>(w.in.data);
  auto* const out = static_cast<std::byte*>(w.out.data);
  const bool plain = w.list.at == nullptr && w.op.kind != reduce_kind::premul_sum;
  const reduce_call reduced{out, in, w.in.count, w.in.element_bytes, w.in.type, w.op, c.size()};
  switch (w.kind) {
    case kind::barrier:
      return {};
    case kind::broadcast:
      return posted::broadcast(c, out, w.out.bytes(), w.peer);
    case kind::all_gather:
      return posted::all_gather(c, in, out, blocks::even(w.in.bytes()));
    case kind::all_to_all:
      if (in == out) break;
      return posted::all_to_all(c, in, out, blocks::even(w.in.bytes() / static_cast<std::size_t>(c.size())));
    case kind::all_reduce:
    case kind::reduce:
    case kind::reduce_scatter:
      if (!plain) break;
      return posted::reduce(c, reduced, blocks::even(w.out.bytes()),
                            w.kind == kind::reduce       ? w.peer
                            : w.kind == kind::all_reduce ? posted::all
                                                         : posted::nobody);
    default:
      break;
  }
  return {.bytes = posted::usual_limit + 1};
}

task<memory_of_others> arrive_and_agree(collective c, std::span<const std::byte> data,
                                        std::span<const std::byte> results, int root, std::size_t whole,
                                        const blocks* parts) {
  collective_segment& b = c.segment();
  memory_of_others others;
  co_await room_to_write(c, 0);
  const bool gives = root < 0 || root == c.rank();
  shown own;
  if (whole >= least_direct && gives) own = {show(b, data), show(b, results)};
  std::memcpy(b.payload(), &own, sizeof own);
  b.arrive();
  if (whole < least_direct || (gives && (own.data.region == 0 || own.results.region == 0))) co_return others;
  arrivals givers(c, root == c.rank() ? -1 : root);
  co_await givers;
  givers.check();
  bool readable = true;
  for (int r = 0; r < c.size(); ++r) {
    if (r == c.rank() || (root >= 0 && r != root)) continue;
    shown theirs;
    std::memcpy(&theirs, b.payload_of(r), sizeof theirs);
    if (theirs.data.region == 0 || theirs.results.region == 0) co_return others;  // as every rank sees
    const auto find = [&](const collective_segment::location& p, std::size_t bytes, const std::byte*& at) {
      if (!readable || p.region == nothing_to_read) return;
      at = b.find_memory(r, p, bytes);
      readable = at != nullptr;
    };
    const auto i = static_cast<std::size_t>(r);
    find(theirs.data, parts == nullptr ? whole : parts->bytes(r), others.data[i]);
    find(theirs.results, whole, others.results[i]);
  }
  b.vote(readable);
  // Votes are of this operation once their ranks have arrived.
  arrivals all(c);
  co_await all;
  all.check();
  auto votes = every_other(c, [&](int r) {
    const collective_segment::opinion vote = b.vote_of(r);
    readable = readable && vote != collective_segment::opinion::no;
    return vote != collective_segment::opinion::none;
  });
  co_await votes;
  others.agreed = readable;
  co_return others;
}

task<> end_reading(collective c, std::uint64_t end, bool is_read) {
  collective_segment& b = c.segment();
  auto valid = every_other(c, [&b](int r) { return !b.has_withdrawn(r); });
  co_await valid;
  b.say_consumed(end);
  if (!is_read) co_return;
  auto readers = every_other(
      c, [&b, end](int r) { return b.progress_of(r).consumed.load(std::memory_order_acquire) >= end; });
  co_await readers;
}

}  // namespace tutti::coll
