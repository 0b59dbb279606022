// SPDX-License-Identifier: Apache-2.0
#include "base/ring_copy.hpp"
#include "coll/segment_publish.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace tutti::coll {
namespace {

// The only rank that gives; -1: all do.
int giver_of(const collective& c, const posted& p) noexcept {
  return p.awaited == posted::nobody ? c.rank() : p.awaited;
}
// Bytes of the longest block that moves, the same on all ranks.
std::size_t longest_of(const collective& c, const posted& p) noexcept {
  return p.gives_own ? p.bytes : p.parts.bytes(c.rank());
}

// A block in the results of this rank.
struct block_place {
  std::byte* to;
  std::size_t bytes;
};
block_place block_from(int giver, const posted& p) noexcept {
  if (p.what == posted::reading::one_block) return {p.to, p.bytes};
  return {p.to + p.parts.begin(giver), p.parts.bytes(giver)};
}
// This rank's block for itself. It is copied piece by piece with the given data, which often are the same and
// then in cache.
block_place own_block(const collective& c, const posted& p) noexcept {
  return p.own == nullptr ? block_place{nullptr, 0} : block_from(c.rank(), p);
}

class movement_rounds : public staged_rounds<movement_rounds, 16> {
 public:
  movement_rounds(const collective& c, const posted& what) noexcept
      : staged_rounds(c, giver_of(c, what), longest_of(c, what),
                      what.gives_own ? 1 : static_cast<std::size_t>(c.size()) - 1, 64),
        w_(what),
        giver_(giver_of(c, what)),
        own_(own_block(c, what)),
        gives_(giver_ < 0 || giver_ == c.rank()),
        receives_(giver_ != c.rank()) {}

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
                                  giver_ < 0 ? 0 : giver_, giver_ < 0 ? c_.size() : giver_ + 1);
  }
  void put(std::uint64_t to, const std::byte* block, std::size_t all) noexcept {
    const std::size_t bytes = in_round(all, staged_);
    if (bytes > 0) b_.write(b_.at(to), block + staged_ * piece_, bytes);
  }

  // The offset, in a round's place, of the data of `giver` for `reader`.
  std::size_t segment(int giver, int reader) const noexcept {
    return w_.gives_own ? 0 : static_cast<std::size_t>((reader - giver - 1 + c_.size()) % c_.size()) * piece_;
  }

  void write() noexcept {
    const std::uint64_t to = start_of(staged_);
    if (w_.gives_own) return put(to, w_.given, w_.given_bytes);
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
    const std::size_t kept = in_round(own_.bytes, staged_);
    if (kept > 0) std::memcpy(own_.to + staged_ * piece_, w_.own + staged_ * piece_, kept);
    ++staged_;
  }
  void read() noexcept {
    const std::uint64_t from = start_of(ended_);
    for (int i = 1; receives_ && i < c_.size(); ++i) {
      const int giver = (c_.rank() + i) % c_.size();
      if (giver_ >= 0 && giver != giver_) continue;
      const block_place block = block_from(giver, w_);
      const std::size_t bytes = in_round(block.bytes, ended_);
      if (bytes > 0)
        base::copy_out(block.to + ended_ * piece_, b_.at(giver, from + segment(giver, c_.rank())), bytes);
    }
    b_.say_consumed(end_of(ended_++));
  }

  const posted& w_;
  const int giver_;
  const block_place own_;
  const bool gives_;
  const bool receives_;
};

constexpr std::size_t direct_piece = 256 * 1024;

// Every rank reads its data where their giver has them.
task<> move_directly(collective c, const posted* w, const memory_of_others* others) {
  comm::collective_segment& b = c.segment();
  const std::uint64_t end = b.take(64) + 64;  // nothing is written there
  const int root = giver_of(c, *w);
  own_turn turn(c);
  for (int i = 0; i < c.size(); ++i) {
    const int giver = (c.rank() + i) % c.size();
    const bool own = i == 0;
    if (!own && root >= 0 && giver != root) continue;
    const block_place block = own ? own_block(c, *w) : block_from(giver, *w);
    const std::byte* const from =
        own ? w->own
            : others->data[static_cast<std::size_t>(giver)] + (w->gives_own ? 0 : w->parts.begin(c.rank()));
    for (std::size_t at = 0; at < block.bytes; at += direct_piece) {
      std::memcpy(block.to + at, from + at, std::min(direct_piece, block.bytes - at));
      if (!turn.is_over()) continue;
      co_await comm::collective_segment::wait(b);
      turn.begin();
    }
  }
  co_await end_reading(c, end, root < 0 || root == c.rank());
}

task<> copy_in_rounds(collective c, posted what) {
  const int root = giver_of(c, what);
  const std::size_t whole = longest_of(c, what) * static_cast<std::size_t>(root < 0 ? c.size() : 1);
  const bool differ = root < 0 && what.gives_own;
  const std::span given(what.given, what.given_bytes);
  const memory_of_others others =
      co_await arrive_and_agree(c, given, {}, root, whole, differ ? &what.parts : nullptr);
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
  return what.is_short() ? publish_on_segment(c, what) : copy_in_rounds(c, what);
}

}  // namespace tutti::coll
