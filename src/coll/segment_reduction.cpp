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

enum class reduction_step { collect, reduce, stage };

class reduction_rounds : public staged_rounds<reduction_rounds, reduction_step, 8> {
 public:
  reduction_rounds(const collective& c, const segment_reduction& what) noexcept
      : staged_rounds(c, -1, what.slices.longest(c.size()), static_cast<std::size_t>(c.size()),
                      what.element_bytes),
        w_(what) {}

  int find(reduction_step& next) noexcept {
    int first = -1;
    if (collects() && ended_ < reduced_) {
      next = reduction_step::collect;
      first = missing(&words::reduced, end_of(ended_));
      if (first < 0) return -1;
    }
    if (reduced_ < staged_) {
      next = reduction_step::reduce;
      const int rank = missing(&words::staged, end_of(reduced_));
      if (rank < 0) return -1;
      if (first < 0) first = rank;
    }
    if (may_stage()) {
      next = reduction_step::stage;
      const int rank = b_.room_for(next_end());
      if (rank < 0) return -1;
      if (first < 0) first = rank;
    }
    return first;
  }
  void take(reduction_step next) {
    switch (next) {
      case reduction_step::collect:
        collect(ended_++);
        b_.say_consumed(end_of(ended_ - 1));
        return;
      case reduction_step::reduce:
        reduce(reduced_++);
        if (w_.shown) b_.say_reduced(end_of(reduced_ - 1));
        if (!collects()) b_.say_consumed(end_of(ended_++));
        return;
      case reduction_step::stage:
        stage(staged_++);
        b_.say_staged(end_of(staged_ - 1));
        return;
    }
  }

 private:
  using words = comm::collective_segment::progress_words;

  int missing(std::atomic<std::uint64_t> words::* which, std::uint64_t end) noexcept {
    return staged_rounds::missing(which, end, 0, c_.size());
  }
  bool collects() const noexcept { return w_.all != nullptr; }
  std::size_t bytes_of(int slice, std::size_t round) const noexcept {
    return in_round(w_.slices.bytes(slice), round);
  }
  std::uint64_t at(std::size_t round, int slice) const noexcept {
    return start_of(round) + static_cast<std::size_t>(slice) * segment_;
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

  const segment_reduction& w_;
  std::size_t reduced_ = 0;
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
    collected_.fill(pieces_);
    for (int r = 0; r < c.size(); ++r)
      if (w_.all != nullptr && r != c.rank()) collected_[static_cast<std::size_t>(r)] = 0;
  }

  bool done() const noexcept {
    return reduced_ == pieces_ && std::ranges::count(collected_, pieces_) == std::ssize(collected_);
  }
  std::uint64_t end() const noexcept { return start_ + pieces_ * mark; }
  void check() const noexcept {}

  bool step() {
    for (int i = 1; i < c_.size(); ++i) {
      const int slice = (c_.rank() + i) % c_.size();
      if (!may_collect(slice)) continue;
      collect(slice, collected_[static_cast<std::size_t>(slice)]++);
      return true;
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
      if (r.collected_[static_cast<std::size_t>(rank)] == r.pieces_) continue;
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
  // Pieces of each slice that this rank has collected; `pieces_` for slices that it does not collect.
  std::array<std::size_t, comm::collective_segment::most_ranks> collected_;
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
  if (what.slices.bytes(0, c.size()) >= least_to_begin_later)
    co_await comm::collective_segment::wait(c.segment());
  if (others.agreed) {
    direct_rounds in_place(c, what, others);
    co_await work_off(c, &in_place);
    co_await end_reading(c, in_place.end(), true);
    co_return;
  }
  reduction_rounds staged(c, what);
  co_await work_off(c, &staged);
}

}  // namespace tutti::coll
