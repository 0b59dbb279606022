// SPDX-License-Identifier: Apache-2.0
#include "coll/segment_publish.hpp"

#include "base/ring_copy.hpp"
#include "coll/reduce.hpp"

#include <array>
#include <span>

namespace tutti::coll {
namespace {

using kind = detail::operation_kind;

void write(const collective& c, const posted& p, const publication& mine) noexcept {
  if (p.given_bytes > 0) c.segment().write(mine.data(), p.given, p.given_bytes);
  c.segment().arrive();
}

void read(const collective& c, const posted& p, const publication& mine) {
  switch (p.what) {
    case posted::reading::nothing:
      return;
    case posted::reading::one_block:
      base::copy_out(p.to, mine.of(p.awaited) + p.offset, p.count);
      return;
    case posted::reading::blocks_of_all:
      for (int r = 0; r < c.size(); ++r) {
        const std::size_t bytes = p.parts.bytes(r);
        if (r != c.rank() && bytes > 0)
          base::copy_out(static_cast<std::byte*>(p.to) + p.parts.begin(r), mine.of(r) + p.offset, bytes);
      }
      return;
    case posted::reading::reduction: {
      std::array<const void*, comm::collective_segment::most_ranks> inputs;
      for (int r = 0; r < c.size(); ++r)
        inputs[static_cast<std::size_t>(r)] =
            r == c.rank() ? static_cast<const std::byte*>(p.given) + p.offset : mine.of(r) + p.offset;
      if (p.count > 0)
        reduce_all(*p.op, p.type,
                   std::span<const void* const>(inputs.data(), static_cast<std::size_t>(c.size())), p.to,
                   p.count);
      return;
    }
  }
}

// Does what is left when this rank's part has been `written`, or everything.
task<> post(collective c, posted what, publication mine, bool written) {
  if (!written) {
    room_to_write room(c, mine.end());
    co_await room;
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

bool publication_at_once::run() {
  if (c_.segment().room_for(mine_.end()) >= 0) return false;
  write(c_, what_, mine_);
  written_ = true;
  if (what_.awaited != posted::nobody) {
    arrivals others(c_, what_.awaited);
    if (!c_.segment().poll(others) || others.found_mismatch()) return false;
  }
  read(c_, what_, mine_);
  return true;
}

task<> publication_at_once::rest_of(collective c, posted what, publication mine, bool written) {
  comm::collective_segment& b = c.segment();
  comm::collective_segment::turn turn(b);  // the turn has come
  co_await post(c, what, mine, written);
  b.finish();
  turn.finish();
}

std::optional<posted> posted_for(const detail::call& w, const collective& c) noexcept {
  posted p;
  const bool plain = w.list.at == nullptr && w.op.kind != reduce_kind::premul_sum;
  const bool is_root = c.rank() == w.peer;
  switch (w.kind) {
    case kind::barrier:
      return p;
    case kind::broadcast:
      p.bytes = p.count = w.out.bytes();
      p.given = p.to = w.out.data;
      p.given_bytes = is_root ? p.bytes : 0;
      p.awaited = is_root ? posted::nobody : w.peer;
      p.what = is_root ? posted::reading::nothing : posted::reading::one_block;
      break;
    case kind::all_reduce:
    case kind::reduce:
      if (!plain) return std::nullopt;
      p.count = w.in.count;
      p.bytes = w.in.bytes();
      p.given = w.in.data;
      p.given_bytes = w.kind == kind::reduce && is_root ? 0 : p.bytes;
      p.awaited = w.kind == kind::all_reduce || is_root ? posted::all : posted::nobody;
      p.what = p.awaited == posted::all ? posted::reading::reduction : posted::reading::nothing;
      p.to = w.out.data;
      p.type = w.out.type;
      p.op = &w.op;
      break;
    default:
      return std::nullopt;
  }
  if (p.bytes > most_in_one_posting) return std::nullopt;
  return p;
}

}  // namespace tutti::coll
