// SPDX-License-Identifier: Apache-2.0
#include "coll/segment_publish.hpp"

#include "base/ring_copy.hpp"

#include <algorithm>

namespace tutti::coll {
namespace {

using kind = detail::operation_kind;

// If all ranks write and then read, rounds gain nothing while the data stay in the caches. If one rank writes
// and the others read, the limit is lower, because they would start late.
constexpr std::size_t exchange_limit = 128 * 1024;
// Longer blocks in shared memory are read in place from least_direct on: one copy instead of two.
constexpr std::size_t own_blocks_limit = least_direct / 2;
// In bytes, so that the loop gets its turn.
constexpr std::size_t most_read = 512 * 1024;

void write(const collective& c, const posted& p, const publication& mine) noexcept {
  comm::collective_segment& segment = c.segment();
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
  switch (p.what) {
    case posted::reading::nothing:
      return;
    case posted::reading::one_block:
      base::copy_out(p.to, mine.of(p.awaited), p.bytes);
      return;
    case posted::reading::blocks_of_all:
      for (int r = 0; r < c.size(); ++r) {
        const std::size_t bytes = p.parts.bytes(r);
        if (r != c.rank() && bytes > 0) base::copy_out(p.to + p.parts.begin(r), mine.of(r) + p.offset, bytes);
      }
      return;
    case posted::reading::reduction: {
      const auto input = [&](int r) { return (r == c.rank() ? p.given : mine.of(r)) + p.offset; };
      if (p.count > 0) reduce_of_ranks(c, *p.op, p.type, input, p.to, p.count);
      return;
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

}  // namespace

task<> publish_on_segment(collective c, posted what) {
  return post(c, what, publication(c, what.bytes), false);
}

bool publish_at_once(const collective& c, const posted& what, const publication& mine, bool& written) {
  comm::collective_segment& segment = c.segment();
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
  comm::collective_segment& b = c.segment();
  comm::collective_segment::turn turn(b);  // the turn has come
  co_await post(c, what, mine, written);
  b.finish();
  turn.finish();
}

posted posted::broadcast(const collective& c, std::byte* data, std::size_t bytes, int root) noexcept {
  const bool is_root = c.rank() == root;
  return {.bytes = bytes,
          .given = data,
          .given_bytes = is_root ? bytes : 0,
          .awaited = is_root ? nobody : root,
          .what = is_root ? reading::nothing : reading::one_block,
          .to = data};
}

posted posted::reduce(const collective& c, const reduce_call& r, int root) noexcept {
  const bool is_root = c.rank() == root;
  const bool reads = root < 0 || is_root;
  const std::size_t bytes = r.count * r.element_bytes;
  return {.bytes = bytes,
          // Of more ranks, rounds read less.
          .limit = root >= 0       ? usual_limit
                   : c.size() == 2 ? exchange_limit
                                   : 16 * 1024,
          .given = r.input,
          .given_bytes = is_root ? 0 : bytes,
          .awaited = reads ? all : nobody,
          .what = reads ? reading::reduction : reading::nothing,
          .to = r.data,
          .count = r.count,
          .type = r.type,
          .op = &r.op};
}

posted posted::reduce_scatter(const collective& c, const reduce_call& r, const blocks& parts) noexcept {
  posted p = reduce(c, r, -1);
  p.limit = own_blocks_limit;
  p.gives_own = false;
  p.parts = parts;
  p.count = parts.bytes(c.rank()) / r.element_bytes;
  p.offset = parts.begin(c.rank());
  return p;
}

posted posted::all_gather(const collective& c, const std::byte* block, std::byte* result,
                          const blocks& parts) noexcept {
  return {.bytes = parts.longest(c.size()),
          .limit = std::min(exchange_limit, most_read / static_cast<std::size_t>(c.size() - 1)),
          .given = block,
          .given_bytes = parts.bytes(c.rank()),
          .own = block,
          .what = reading::blocks_of_all,
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
          .what = reading::blocks_of_all,
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
      if (!plain) break;
      return posted::reduce(c, reduced, w.kind == kind::reduce ? w.peer : -1);
    case kind::reduce_scatter:
      if (!plain) break;
      return posted::reduce_scatter(c, reduced, blocks::even(w.out.bytes()));
    default:
      break;
  }
  return {.bytes = posted::usual_limit + 1};
}

}  // namespace tutti::coll
