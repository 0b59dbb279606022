// SPDX-License-Identifier: Apache-2.0
#include "coll/segment_copy.hpp"

#include "base/ring_copy.hpp"
#include "coll/segment_direct_access.hpp"
#include "coll/segment_progress.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::coll {
namespace {

class movement_rounds {
 public:
  movement_rounds(const collective& c, const segment_movement& what) noexcept
      : c_(c), b_(c.segment()), w_(what), others_(c, what.root) {
    segments_ = w_.to_each ? static_cast<std::size_t>(c.size()) - 1 : 1;
    const std::size_t fits = b_.ring_bytes() / 4 / segments_;
    piece_ = std::clamp(w_.longest / 4, smallest_piece, std::min(largest_piece, fits)) & ~std::size_t{63};
    rounds_ = (w_.longest + piece_ - 1) / piece_;
    ahead_ = std::clamp<std::size_t>(b_.ring_bytes() / 2 / (piece_ * segments_), 1, most_ahead);
    gives_ = w_.root < 0 || w_.root == c.rank();
    receives_ = w_.root < 0 || w_.root != c.rank();
  }

  bool done() const noexcept { return ended_ == rounds_; }
  void check() const { others_.check(); }

  bool step() noexcept {
    if (ended_ < staged_ && (!receives_ || missing(end_of(ended_)) < 0)) {
      if (receives_) read(ended_);
      b_.say_consumed(end_of(ended_++));
      return true;
    }
    if (may_stage() && (!gives_ || b_.room_for(next_end()) < 0)) {
      next_end();
      if (gives_) {
        write(staged_);
        b_.say_staged(end_of(staged_));
      }
      keep(staged_);
      ++staged_;
      return true;
    }
    return false;
  }

  static int possible(void* self) noexcept {
    auto& r = *static_cast<movement_rounds*>(self);
    const int lacking = r.lacking();
    return r.others_.found_mismatch() ? -1 : lacking;  // to be refused
  }

 private:
  // Returns -1 if a step is possible, otherwise a rank that must progress first.
  int lacking() noexcept {
    int first = -1;
    if (ended_ < staged_) {
      first = receives_ ? missing(end_of(ended_)) : -1;
      if (first < 0) return -1;
    }
    if (may_stage()) {
      const int rank = gives_ ? b_.room_for(next_end()) : -1;
      if (rank < 0) return -1;
      if (first < 0) first = rank;
    }
    return first;
  }
  std::uint64_t end_of(std::size_t round) const noexcept {
    return starts_[round % most_ahead] + piece_ * segments_;
  }
  bool may_stage() const noexcept { return staged_ < rounds_ && staged_ - ended_ < ahead_; }
  std::uint64_t next_end() noexcept {
    if (taken_ == staged_) starts_[taken_++ % most_ahead] = b_.take(piece_ * segments_);
    return end_of(staged_);
  }
  int missing(std::uint64_t end) noexcept {
    // A rank's words are of this operation only when it has arrived at it.
    if (const int rank = others_.poll(); rank >= 0) return rank;
    if (others_.found_mismatch()) return c_.rank();
    const int first = w_.root < 0 ? 0 : w_.root;
    const int last = w_.root < 0 ? c_.size() : w_.root + 1;
    for (int r = first; r < last; ++r)
      if (r != c_.rank() && b_.progress_of(r).staged.load(std::memory_order_acquire) < end) return r;
    return -1;
  }
  // The bytes of a block of `all` bytes that move in a round.
  std::size_t in_round(std::size_t all, std::size_t round) const noexcept {
    const std::size_t begin = round * piece_;
    return begin < all ? std::min(piece_, all - begin) : 0;
  }
  void put(std::uint64_t to, const std::byte* block, std::size_t all, std::size_t round) noexcept {
    const std::size_t bytes = in_round(all, round);
    if (bytes > 0) b_.write(b_.at(to), block + round * piece_, bytes);
  }

  // The offset, in a round's place, of the data of `giver` for `reader`.
  std::size_t segment(int giver, int reader) const noexcept {
    return w_.to_each ? static_cast<std::size_t>((reader - giver - 1 + c_.size()) % c_.size()) * piece_ : 0;
  }

  void write(std::size_t round) noexcept {
    const std::uint64_t to = starts_[round % most_ahead];
    if (!w_.to_each) return put(to, w_.given, w_.given_bytes, round);
    for (int i = 1; i < c_.size(); ++i) {
      const int block = (c_.rank() + i) % c_.size();
      put(to + segment(c_.rank(), block), w_.given + w_.given_parts.begin(block), w_.given_parts.bytes(block),
          round);
    }
  }
  void keep(std::size_t round) noexcept {
    const std::size_t bytes = in_round(w_.own_bytes, round);
    if (bytes > 0) std::memcpy(w_.own_to + round * piece_, w_.own_from + round * piece_, bytes);
  }
  void read(std::size_t round) noexcept {
    const std::uint64_t from = starts_[round % most_ahead];
    for (int i = 1; i < c_.size(); ++i) {
      const int giver = (c_.rank() + i) % c_.size();
      if (w_.root >= 0 && giver != w_.root) continue;
      const std::size_t at = w_.root >= 0 ? 0 : w_.received_parts.begin(giver);
      const std::size_t all = w_.root >= 0 ? w_.longest : w_.received_parts.bytes(giver);
      const std::size_t bytes = in_round(all, round);
      if (bytes > 0)
        base::copy_out(w_.received + at + round * piece_, b_.at(giver, from + segment(giver, c_.rank())),
                       bytes);
    }
  }

  static constexpr std::size_t most_ahead = 16;  // rounds that a rank may be ahead of its own reading
  static constexpr std::size_t smallest_piece = 16 * 1024;
  static constexpr std::size_t largest_piece = 128 * 1024;

  const collective& c_;
  comm::collective_segment& b_;
  const segment_movement& w_;
  arrivals others_;  // the ranks that this one reads from
  std::size_t segments_ = 1;
  std::size_t piece_ = 0;
  std::size_t rounds_ = 0;
  std::size_t ahead_ = 1;
  bool gives_ = true;
  bool receives_ = true;
  std::size_t taken_ = 0;
  std::size_t staged_ = 0;
  std::size_t ended_ = 0;
  std::array<std::uint64_t, most_ahead> starts_{};
};

constexpr std::size_t direct_piece = 256 * 1024;

// Every rank reads its data where their giver has them.
task<> move_directly(collective c, const segment_movement* w, const memory_of_others* others) {
  comm::collective_segment& b = c.segment();
  const std::uint64_t end = b.take(64) + 64;  // nothing is written there
  own_turn turn(c);
  for (int i = 0; i < c.size(); ++i) {
    const int giver = (c.rank() + i) % c.size();
    const bool own = i == 0;
    if (own ? w->own_bytes == 0 : w->root >= 0 && giver != w->root) continue;
    const std::size_t bytes = own ? w->own_bytes : w->root >= 0 ? w->longest : w->received_parts.bytes(giver);
    std::byte* const to = own ? w->own_to : w->received + (w->root >= 0 ? 0 : w->received_parts.begin(giver));
    const std::byte* const from = own ? w->own_from
                                      : others->data[static_cast<std::size_t>(giver)] +
                                            (w->to_each ? w->given_parts.begin(c.rank()) : 0);
    for (std::size_t at = 0; at < bytes; at += direct_piece) {
      std::memcpy(to + at, from + at, std::min(direct_piece, bytes - at));
      if (!turn.is_over()) continue;
      comm::collective_segment::wait pause(b);
      co_await pause;
      turn.begin();
    }
  }
  co_await say_read(c, end);
  if (w->root < 0 || w->root == c.rank()) co_await until_all_consumed(c, end);
}

}  // namespace

task<> copy_on_segment(collective c, segment_movement what) {
  memory_of_others others;
  own_memory mine;
  mine.data = what.given;
  mine.data_bytes = what.to_each ? what.given_parts.bytes(0, c.size()) : what.given_bytes;
  const std::size_t whole = what.longest * static_cast<std::size_t>(what.root < 0 ? c.size() : 1);
  const bool differ = what.root < 0 && !what.to_each;
  co_await arrive_and_agree(c, mine, what.root, whole, differ ? &what.received_parts : nullptr, &others);
  if (whole >= least_to_begin_later) {
    comm::collective_segment::wait pause(c.segment());
    co_await pause;
  }
  if (others.agreed) {
    co_await move_directly(c, &what, &others);
  } else {
    movement_rounds staged(c, what);
    co_await work_off(c, &staged);
  }
}

}  // namespace tutti::coll
