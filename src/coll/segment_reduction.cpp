// SPDX-License-Identifier: Apache-2.0
#include "coll/segment_reduction.hpp"

#include "base/ring_copy.hpp"
#include "coll/reduce.hpp"
#include "coll/segment_direct_access.hpp"
#include "coll/segment_progress.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace tutti::coll {
namespace {

class reduction_rounds {
 public:
  reduction_rounds(const collective& c, const segment_reduction& what) noexcept
      : c_(c), b_(c.segment()), w_(what), others_(c) {
    const std::size_t longest = w_.slices.longest(c.size());
    const auto ranks = static_cast<std::size_t>(c.size());
    const std::size_t fits = b_.ring_bytes() / 4 / ranks;
    const std::size_t piece = std::clamp(longest / 4, smallest_piece, std::min(largest_piece, fits));
    piece_ = std::max<std::size_t>(1, piece / w_.element_bytes) * w_.element_bytes;
    segment_ = (piece_ + 63) & ~std::size_t{63};
    rounds_ = (longest + piece_ - 1) / piece_;
    ahead_ = std::clamp<std::size_t>(b_.ring_bytes() / 2 / (segment_ * ranks), 1, most_ahead);
  }

  bool done() const noexcept { return ended_ == rounds_; }
  void check() const { others_.check(); }

  // Takes one step that is possible now; returns false if there is none.
  bool step() {
    if (collects() && ended_ < reduced_ &&
        missing(&comm::collective_segment::progress_words::reduced, end_of(ended_)) < 0) {
      collect(ended_++);
      b_.say_consumed(end_of(ended_ - 1));
      return true;
    }
    if (reduced_ < staged_ &&
        missing(&comm::collective_segment::progress_words::staged, end_of(reduced_)) < 0) {
      reduce(reduced_++);
      if (w_.shown) b_.say_reduced(end_of(reduced_ - 1));
      if (!collects()) b_.say_consumed(end_of(ended_++));
      return true;
    }
    if (may_stage() && b_.room_for(next_end()) < 0) {
      stage(staged_++);
      b_.say_staged(end_of(staged_ - 1));
      return true;
    }
    return false;
  }

  // collective_segment::wait::test.
  static int possible(void* self) noexcept {
    auto& r = *static_cast<reduction_rounds*>(self);
    const int lacking = r.lacking();
    return r.others_.found_mismatch() ? -1 : lacking;  // to be refused
  }

 private:
  // Returns -1 if a step is possible, otherwise a rank that must progress first.
  int lacking() noexcept {
    int first = -1;
    if (collects() && ended_ < reduced_) {
      first = missing(&comm::collective_segment::progress_words::reduced, end_of(ended_));
      if (first < 0) return -1;
    }
    if (reduced_ < staged_) {
      const int rank = missing(&comm::collective_segment::progress_words::staged, end_of(reduced_));
      if (rank < 0) return -1;
      if (first < 0) first = rank;
    }
    if (may_stage()) {
      const int rank = b_.room_for(next_end());
      if (rank < 0) return -1;
      if (first < 0) first = rank;
    }
    return first;
  }
  using word = std::atomic<std::uint64_t> comm::collective_segment::progress_words::*;

  bool collects() const noexcept { return w_.all != nullptr; }
  std::size_t round_bytes() const noexcept { return segment_ * static_cast<std::size_t>(c_.size()); }
  std::uint64_t end_of(std::size_t round) const noexcept {
    return starts_[round % most_ahead] + round_bytes();
  }
  bool may_stage() const noexcept { return staged_ < rounds_ && staged_ - ended_ < ahead_; }

  // The end of the round to be staged next. Its place in the stream is taken once.
  std::uint64_t next_end() noexcept {
    if (taken_ == staged_) starts_[taken_++ % most_ahead] = b_.take(round_bytes());
    return end_of(staged_);
  }

  int missing(word which, std::uint64_t end) noexcept {
    // A rank's words are of this operation only when it has arrived at it.
    if (const int rank = others_.poll(); rank >= 0) return rank;
    if (others_.found_mismatch()) return c_.rank();
    for (int r = 0; r < c_.size(); ++r)
      if (r != c_.rank() && (b_.progress_of(r).*which).load(std::memory_order_acquire) < end) return r;
    return -1;
  }

  std::size_t bytes_of(int slice, std::size_t round) const noexcept {
    const std::size_t all = w_.slices.bytes(slice);
    const std::size_t begin = round * piece_;
    return begin < all ? std::min(piece_, all - begin) : 0;
  }
  std::uint64_t at(std::size_t round, int slice) const noexcept {
    return starts_[round % most_ahead] + static_cast<std::size_t>(slice) * segment_;
  }

  void stage(std::size_t round) noexcept {
    for (int i = 1; i < c_.size(); ++i) {
      const int slice = (c_.rank() + i) % c_.size();
      const std::size_t bytes = bytes_of(slice, round);
      if (bytes > 0)
        b_.write(b_.at(at(round, slice)), w_.input + w_.slices.begin(slice) + round * piece_, bytes);
    }
  }

  void reduce(std::size_t round) {
    const int own = c_.rank();
    const std::size_t bytes = bytes_of(own, round);
    if (bytes == 0) return;
    std::array<const void*, comm::collective_segment::most_ranks> inputs;
    for (int r = 0; r < c_.size(); ++r)
      inputs[static_cast<std::size_t>(r)] =
          r == own ? w_.input + w_.slices.begin(own) + round * piece_ : b_.at(r, at(round, own));
    std::byte* const here = b_.at(at(round, own));
    std::byte* const to = w_.result != nullptr ? w_.result + round * piece_ : here;
    reduce_all(w_.op, w_.type,
               std::span<const void* const>(inputs.data(), static_cast<std::size_t>(c_.size())), to,
               bytes / w_.element_bytes);
    if (w_.shown && to != here) b_.write(here, to, bytes);
  }

  void collect(std::size_t round) noexcept {
    for (int i = 1; i < c_.size(); ++i) {
      const int slice = (c_.rank() + i) % c_.size();
      const std::size_t bytes = bytes_of(slice, round);
      if (bytes > 0)
        base::copy_out(w_.all + w_.slices.begin(slice) + round * piece_, b_.at(slice, at(round, slice)),
                       bytes);
    }
  }

  static constexpr std::size_t most_ahead = 8;  // rounds that a rank may be ahead of its own slowest step
  static constexpr std::size_t smallest_piece = 16 * 1024;
  static constexpr std::size_t largest_piece = 128 * 1024;

  const collective& c_;
  comm::collective_segment& b_;
  const segment_reduction& w_;
  arrivals others_;
  std::size_t piece_ = 0;    // bytes of a slice in a round
  std::size_t segment_ = 0;  // the room it has
  std::size_t rounds_ = 0;
  std::size_t ahead_ = 1;
  std::size_t taken_ = 0;  // rounds whose place is known
  std::size_t staged_ = 0;
  std::size_t reduced_ = 0;
  std::size_t ended_ = 0;  // from here on this rank reads nothing any more
  std::array<std::uint64_t, most_ahead> starts_{};
};

// The same in the ranks' own memory: slices are reduced in place, and results are collected from where they
// were written.
class direct_rounds {
 public:
  direct_rounds(const collective& c, const segment_reduction& what, const memory_of_others& others) noexcept
      : c_(c), b_(c.segment()), w_(what), others_(others) {
    const std::size_t longest = w_.slices.longest(c.size());
    const std::size_t piece = std::max(direct_piece, longest / most_pieces + 1);
    piece_ = std::max<std::size_t>(1, piece / w_.element_bytes) * w_.element_bytes;
    pieces_ = (longest + piece_ - 1) / piece_;
    start_ = b_.take(pieces_ * mark);
  }

  bool done() const noexcept {
    if (reduced_ < pieces_) return false;
    if (w_.all == nullptr) return true;
    for (int r = 0; r < c_.size(); ++r)
      if (r != c_.rank() && collected_[static_cast<std::size_t>(r)] < pieces_) return false;
    return true;
  }
  std::uint64_t end() const noexcept { return start_ + pieces_ * mark; }
  void check() const noexcept {}

  bool step() {
    if (w_.all != nullptr) {
      for (int i = 1; i < c_.size(); ++i) {
        const int slice = (c_.rank() + i) % c_.size();
        if (!may_collect(slice)) continue;
        collect(slice, collected_[static_cast<std::size_t>(slice)]++);
        return true;
      }
    }
    if (reduced_ == pieces_) return false;
    reduce(reduced_++);
    b_.say_reduced(start_ + reduced_ * mark);
    return true;
  }

  // All own pieces are reduced.
  static int possible(void* self) noexcept {
    auto& r = *static_cast<direct_rounds*>(self);
    int lacking = -1;
    for (int rank = 0; rank < r.c_.size(); ++rank) {
      if (rank == r.c_.rank() || r.collected_[static_cast<std::size_t>(rank)] == r.pieces_) continue;
      if (r.may_collect(rank)) return -1;
      if (lacking < 0) lacking = rank;
    }
    return lacking;
  }

 private:
  static constexpr std::size_t direct_piece = 128 * 1024;
  static constexpr std::size_t most_pieces = 4096;
  static constexpr std::uint64_t mark = 64;  // of the stream for each piece: nothing is written there

  bool may_collect(int slice) const noexcept {
    const std::size_t next = collected_[static_cast<std::size_t>(slice)];
    return next < pieces_ &&
           b_.progress_of(slice).reduced.load(std::memory_order_acquire) >= start_ + (next + 1) * mark;
  }
  std::size_t bytes_of(int slice, std::size_t piece) const noexcept {
    const std::size_t all = w_.slices.bytes(slice);
    return piece * piece_ < all ? std::min(piece_, all - piece * piece_) : 0;
  }
  void reduce(std::size_t piece) {
    const int own = c_.rank();
    const std::size_t bytes = bytes_of(own, piece);
    if (bytes == 0) return;
    const std::size_t at = w_.slices.begin(own) + piece * piece_;
    std::array<const void*, comm::collective_segment::most_ranks> inputs;
    for (std::size_t r = 0; r < static_cast<std::size_t>(c_.size()); ++r)
      inputs[r] = (static_cast<int>(r) == own ? w_.input : others_.data[r]) + at;
    reduce_all(w_.op, w_.type,
               std::span<const void* const>(inputs.data(), static_cast<std::size_t>(c_.size())),
               w_.result + piece * piece_, bytes / w_.element_bytes);
  }
  void collect(int slice, std::size_t piece) noexcept {
    const std::size_t bytes = bytes_of(slice, piece);
    const std::size_t at = w_.slices.begin(slice) + piece * piece_;
    if (bytes > 0) std::memcpy(w_.all + at, others_.results[static_cast<std::size_t>(slice)] + at, bytes);
  }

  const collective& c_;
  comm::collective_segment& b_;
  const segment_reduction& w_;
  const memory_of_others& others_;
  std::size_t piece_ = 0;
  std::size_t pieces_ = 0;
  std::uint64_t start_ = 0;
  std::size_t reduced_ = 0;
  std::array<std::size_t, comm::collective_segment::most_ranks> collected_{};
};

}  // namespace

task<> reduce_on_segment(collective c, segment_reduction what) {
  memory_of_others others;
  const std::size_t whole = what.alike ? what.slices.bytes(0, c.size()) : 0;
  own_memory mine;
  mine.data = what.input;
  mine.data_bytes = whole;
  mine.results = what.all;
  mine.results_bytes = what.all == nullptr ? 0 : whole;
  co_await arrive_and_agree(c, mine, -1, whole, nullptr, &others);
  if (what.slices.bytes(0, c.size()) >= least_to_begin_later) {
    comm::collective_segment::wait pause(c.segment());
    co_await pause;
  }
  if (others.agreed) {
    direct_rounds in_place(c, what, others);
    co_await work_off(c, &in_place);
    co_await say_read(c, in_place.end());
    co_await until_all_consumed(c, in_place.end());
    co_return;
  }
  reduction_rounds staged(c, what);
  co_await work_off(c, &staged);
}

}  // namespace tutti::coll
