// SPDX-License-Identifier: Apache-2.0
#include "base/ring_copy.hpp"
#include "coll/segment_publish.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace tutti::coll {
namespace {

class reduction_rounds : public staged_rounds<reduction_rounds, 8> {
 public:
  reduction_rounds(const collective& c, const segment_reduction& what) noexcept
      : staged_rounds(c, -1, what.slices.longest(c.size()), static_cast<std::size_t>(c.size()),
                      what.r.element_bytes),
        w_(what) {}

  int find(step_function& next) noexcept {
    int first = -1;
    if (collects() && ended_ < reduced_) {
      next = &reduction_rounds::collect;
      first = missing(&words::reduced, end_of(ended_));
      if (first < 0) return -1;
    }
    if (reduced_ < staged_) {
      next = &reduction_rounds::reduce;
      const int rank = missing(&words::staged, end_of(reduced_));
      if (rank < 0) return -1;
      if (first < 0) first = rank;
    }
    if (may_stage()) {
      next = &reduction_rounds::stage;
      const int rank = b_.room_for(next_end());
      if (rank < 0) return -1;
      if (first < 0) first = rank;
    }
    return first;
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

  void stage() noexcept {
    for (int i = 1; i < c_.size(); ++i) {
      const int slice = (c_.rank() + i) % c_.size();
      const std::size_t bytes = bytes_of(slice, staged_);
      if (bytes > 0)
        b_.write(b_.at(at(staged_, slice)), w_.r.input + w_.slices.begin(slice) + staged_ * piece_, bytes);
    }
    b_.say_staged(end_of(staged_++));
  }

  void reduce() {
    const int own = c_.rank();
    const std::size_t round = reduced_++, bytes = bytes_of(own, round);
    if (bytes > 0) {
      std::byte* const here = b_.at(at(round, own));
      std::byte* const to = w_.result != nullptr ? w_.result + round * piece_ : here;
      const auto input = [&](int r) {
        return r == own ? w_.r.input + w_.slices.begin(own) + round * piece_ : b_.at(r, at(round, own));
      };
      reduce_of_ranks(c_, w_.r.op, w_.r.type, input, to, bytes / w_.r.element_bytes);
      if (w_.shown && to != here) b_.write(here, to, bytes);
    }
    if (w_.shown) b_.say_reduced(end_of(round));
    if (!collects()) b_.say_consumed(end_of(ended_++));
  }

  void collect() noexcept {
    for (int i = 1; i < c_.size(); ++i) {
      const int slice = (c_.rank() + i) % c_.size();
      const std::size_t bytes = bytes_of(slice, ended_);
      if (bytes > 0)
        base::copy_out(w_.all + w_.slices.begin(slice) + ended_ * piece_, b_.at(slice, at(ended_, slice)),
                       bytes);
    }
    b_.say_consumed(end_of(ended_++));
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
    piece_ = std::max<std::size_t>(1, piece / w_.r.element_bytes) * w_.r.element_bytes;
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
  int possible() const noexcept {
    int lacking = -1;
    for (int rank = 0; rank < c_.size(); ++rank) {
      if (collected_[static_cast<std::size_t>(rank)] == pieces_) continue;
      if (may_collect(rank)) return -1;
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
    const auto input = [&](int r) {
      return (r == own ? w_.r.input : others_.data[static_cast<std::size_t>(r)]) + at;
    };
    reduce_of_ranks(c_, w_.r.op, w_.r.type, input, w_.result + piece * piece_, bytes / w_.r.element_bytes);
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
  const std::size_t whole = what.alike ? what.slices.bytes(0, c.size()) : 0;
  const std::span input(what.r.input, whole);
  const std::span results(what.all, what.all == nullptr ? 0 : whole);
  const memory_of_others others = co_await arrive_and_agree(c, input, results, -1, whole, nullptr);
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
