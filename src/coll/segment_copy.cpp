// SPDX-License-Identifier: Apache-2.0
#include "base/ring_copy.hpp"
#include "coll/segment_direct_access.hpp"
#include "coll/segment_progress.hpp"
#include "coll/segment_rounds.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::coll {
namespace {

// What moves, as it was posted.
struct movement {
  movement(const collective& c, const posted& p) noexcept
      : root(p.awaited == posted::nobody ? c.rank() : p.awaited),
        to_each(!p.gives_own),
        given(static_cast<const std::byte*>(p.given)),
        given_bytes(p.given_bytes),
        received(static_cast<std::byte*>(p.to)),
        parts(p.parts),
        longest(to_each ? parts.bytes(c.rank()) : p.bytes),
        own_from(static_cast<const std::byte*>(p.own)),
        own_to(received + parts.begin(c.rank())),
        own_bytes(p.own == nullptr ? 0 : parts.bytes(c.rank())) {}
  int root;                // the only rank that gives; -1: all do
  bool to_each;            // a separate block for every rank; otherwise one for all
  const std::byte* given;  // the block, or all of them
  std::size_t given_bytes;
  std::byte* received;  // with a root its block; otherwise those of all
  blocks parts;         // of all blocks: block r comes from rank r, and is for it if `to_each`
  std::size_t longest;  // bytes of the longest block that moves, the same on all ranks
  // This rank's block for itself. It is copied piece by piece with the given data, which often are the same
  // and then in cache.
  const std::byte* own_from;
  std::byte* own_to;
  std::size_t own_bytes;  // at most `longest`
};

class movement_rounds : public staged_rounds<movement_rounds, 16> {
 public:
  movement_rounds(const collective& c, const movement& what) noexcept
      : staged_rounds(c, what.root, what.longest, what.to_each ? static_cast<std::size_t>(c.size()) - 1 : 1,
                      64),
        w_(what),
        gives_(what.root < 0 || what.root == c.rank()),
        receives_(what.root < 0 || what.root != c.rank()) {}

  int find(step_function& next) noexcept {
    int first = -1;
    if (ended_ < staged_) {
      next = &movement_rounds::read;
      first = receives_ ? missing(end_of(ended_)) : -1;
      if (first < 0) return -1;
    }
    if (may_stage()) {
      next = &movement_rounds::stage;
      const int rank = gives_ ? b_.room_for(next_end()) : -1;
      if (rank < 0) return -1;
      if (first < 0) first = rank;
    }
    return first;
  }

 private:
  int missing(std::uint64_t end) noexcept {
    return staged_rounds::missing(&comm::collective_segment::progress_words::staged, end,
                                  w_.root < 0 ? 0 : w_.root, w_.root < 0 ? c_.size() : w_.root + 1);
  }
  void put(std::uint64_t to, const std::byte* block, std::size_t all) noexcept {
    const std::size_t bytes = in_round(all, staged_);
    if (bytes > 0) b_.write(b_.at(to), block + staged_ * piece_, bytes);
  }

  // The offset, in a round's place, of the data of `giver` for `reader`.
  std::size_t segment(int giver, int reader) const noexcept {
    return w_.to_each ? static_cast<std::size_t>((reader - giver - 1 + c_.size()) % c_.size()) * piece_ : 0;
  }

  void write() noexcept {
    const std::uint64_t to = start_of(staged_);
    if (!w_.to_each) return put(to, w_.given, w_.given_bytes);
    for (int i = 1; i < c_.size(); ++i) {
      const int block = (c_.rank() + i) % c_.size();
      put(to + segment(c_.rank(), block), w_.given + w_.parts.begin(block), w_.parts.bytes(block));
    }
  }
  void stage() noexcept {
    next_end();
    if (gives_) {
      write();
      b_.say_staged(end_of(staged_));
    }
    const std::size_t kept = in_round(w_.own_bytes, staged_);
    if (kept > 0) std::memcpy(w_.own_to + staged_ * piece_, w_.own_from + staged_ * piece_, kept);
    ++staged_;
  }
  void read() noexcept {
    const std::uint64_t from = start_of(ended_);
    for (int i = 1; receives_ && i < c_.size(); ++i) {
      const int giver = (c_.rank() + i) % c_.size();
      if (w_.root >= 0 && giver != w_.root) continue;
      const std::size_t at = w_.root >= 0 ? 0 : w_.parts.begin(giver);
      const std::size_t all = w_.root >= 0 ? w_.longest : w_.parts.bytes(giver);
      const std::size_t bytes = in_round(all, ended_);
      if (bytes > 0)
        base::copy_out(w_.received + at + ended_ * piece_, b_.at(giver, from + segment(giver, c_.rank())),
                       bytes);
    }
    b_.say_consumed(end_of(ended_++));
  }

  const movement& w_;
  const bool gives_;
  const bool receives_;
};

constexpr std::size_t direct_piece = 256 * 1024;

// Every rank reads its data where their giver has them.
task<> move_directly(collective c, const movement* w, const memory_of_others* others) {
  comm::collective_segment& b = c.segment();
  const std::uint64_t end = b.take(64) + 64;  // nothing is written there
  own_turn turn(c);
  for (int i = 0; i < c.size(); ++i) {
    const int giver = (c.rank() + i) % c.size();
    const bool own = i == 0;
    if (own ? w->own_bytes == 0 : w->root >= 0 && giver != w->root) continue;
    const std::size_t bytes = own ? w->own_bytes : w->root >= 0 ? w->longest : w->parts.bytes(giver);
    std::byte* const to = own ? w->own_to : w->received + (w->root >= 0 ? 0 : w->parts.begin(giver));
    const std::byte* const from =
        own ? w->own_from
            : others->data[static_cast<std::size_t>(giver)] + (w->to_each ? w->parts.begin(c.rank()) : 0);
    for (std::size_t at = 0; at < bytes; at += direct_piece) {
      std::memcpy(to + at, from + at, std::min(direct_piece, bytes - at));
      if (!turn.is_over()) continue;
      co_await comm::collective_segment::wait(b);
      turn.begin();
    }
  }
  co_await end_reading(c, end, w->root < 0 || w->root == c.rank());
}

task<> copy_in_rounds(collective c, movement what) {
  memory_of_others others;
  own_memory mine;
  mine.data = what.given;
  mine.data_bytes = what.given_bytes;
  const std::size_t whole = what.longest * static_cast<std::size_t>(what.root < 0 ? c.size() : 1);
  const bool differ = what.root < 0 && !what.to_each;
  co_await arrive_and_agree(c, mine, what.root, whole, differ ? &what.parts : nullptr, &others);
  if (whole >= least_to_begin_later) co_await comm::collective_segment::wait(c.segment());
  if (others.agreed) {
    co_await move_directly(c, &what, &others);
  } else {
    movement_rounds staged(c, what);
    co_await work_off(c, &staged);
  }
}

}  // namespace

task<> copy_on_segment(collective c, const posted& what) {
  return what.is_short() ? publish_on_segment(c, what) : copy_in_rounds(c, movement(c, what));
}

}  // namespace tutti::coll
