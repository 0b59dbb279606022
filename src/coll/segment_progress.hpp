// SPDX-License-Identifier: Apache-2.0
// Common steps of algorithms on a collective segment: set-up, waiting for room, waiting for other ranks,
// publishing data that fit in one piece, rounds for those that do not, reading the others' memory in place, and
// reducing one input of each rank.
//
//   publication mine(c, bytes);                // the same on all ranks
//   co_await room_to_write(c, mine.end());     then write mine.data()
//   c.segment().arrive();
//   arrivals others(c);                        await it; then read mine.of(rank)
#pragma once

#include "coll/blocks.hpp"
#include "coll/collective.hpp"
#include "coll/reduce.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tutti/task.hpp>

namespace tutti::coll {

// Makes the segment by messages, in the turn of the first operation on it. Ends without a segment if a rank
// lacks what it needs.
task<> set_up_segment(collective c);

// Throws errc::mismatch, naming both calls: `rank` has another operation on the segment.
[[noreturn]] void refuse_operation(const collective& c, int rank);

// Waits until over() returns -1, and not the rank that is waited for. Awaited like its base class. Not movable:
// a test is bound to the object's address.
template <class Test>
class until : public comm::collective_segment::wait {
 public:
  until(const collective& c, Test over) noexcept : wait(c.segment(), &call, this), over_(over) {}

 private:
  static int call(void* self) noexcept { return static_cast<until*>(self)->over_(); }
  Test over_;
};

// Waits until this rank may write its slot, and the stream up to `end`.
inline auto room_to_write(const collective& c, std::uint64_t end) noexcept {
  return until(c, [&segment = c.segment(), end] { return segment.room_for(end); });
}

// Waits until every other rank, or `only` one, has arrived at this operation. check() then throws if one was
// at another operation.
class arrivals : public comm::collective_segment::wait {
 public:
  // `only` -1: all.
  explicit arrivals(const collective& c, int only = -1) noexcept
      : wait(c.segment(), &test, this),
        c_(c),
        next_(only < 0 ? 0 : only),
        last_(only < 0 ? c.size() : only + 1) {}
  void check() const {
    if (mismatched_ >= 0) refuse_operation(c_, mismatched_);
  }
  // Checks without waiting. Returns a rank that has not arrived, or -1; then call check().
  int poll() noexcept {
    for (; next_ < last_ && mismatched_ < 0; ++next_) {
      if (next_ == c_.rank()) continue;
      const auto seen = c_.segment().check_arrival(next_);
      if (seen == comm::collective_segment::arrival::not_yet) return next_;
      if (seen == comm::collective_segment::arrival::other) mismatched_ = next_;
    }
    return -1;
  }
  bool found_mismatch() const noexcept { return mismatched_ >= 0; }

 private:
  static int test(void* self) noexcept { return static_cast<arrivals*>(self)->poll(); }
  const collective& c_;
  int next_;
  int last_;
  int mismatched_ = -1;
};

// Publishes `bytes` bytes of each rank: in its slot if they fit, otherwise in the stream.
class publication {
 public:
  publication(const collective& c, std::size_t bytes) noexcept
      : segment_(c.segment()),
        in_slot_(bytes <= comm::collective_segment::slot_payload),
        at_(in_slot_ ? 0 : segment_.take(bytes)),
        bytes_(bytes) {}
  std::uint64_t end() const noexcept { return in_slot_ ? 0 : at_ + bytes_; }
  std::byte* data() const noexcept { return in_slot_ ? segment_.payload() : segment_.at(at_); }
  const std::byte* of(int rank) const noexcept {
    return in_slot_ ? segment_.payload_of(rank) : segment_.at(rank, at_);
  }

 private:
  comm::collective_segment& segment_;
  bool in_slot_;
  std::uint64_t at_;
  std::size_t bytes_;
};

// reduce_all of input(rank) of all ranks.
template <class Input>
void reduce_of_ranks(const collective& c, const detail::reduction& op, element_type type, const Input& input,
                     void* to, std::size_t count) {
  std::array<const void*, comm::collective_segment::most_ranks> inputs;
  const auto size = static_cast<std::size_t>(c.size());
  for (std::size_t r = 0; r < size; ++r) inputs[r] = input(static_cast<int>(r));
  reduce_all(op, type, std::span<const void* const>(inputs.data(), size), to, count);
}

// Bounds how long an operation copies before the loop gets a turn.
class own_turn {
 public:
  explicit own_turn(const collective& c) noexcept : platform_(c.comm().engine().platform()) { begin(); }
  void begin() noexcept { ends_ = platform_.now() + longest; }
  bool is_over() const noexcept { return platform_.now() >= ends_; }

 private:
  static constexpr auto longest = std::chrono::microseconds(100);
  core::platform& platform_;
  core::time_point ends_;
};

// Takes steps as they become possible, until r->done(). r->possible() returns -1, or the rank that is waited for.
template <class Rounds>
task<> work_off(collective c, Rounds* r) {
  own_turn turn(c);
  while (!r->done()) {
    r->check();
    if (r->step()) {
      if (!turn.is_over()) continue;
      co_await comm::collective_segment::wait(c.segment());
    } else {
      co_await until(c, [r] { return r->possible(); });
    }
    turn.begin();
  }
}

// Rounds in which ranks stage pieces of blocks in the stream, for work_off(): what copies and reductions share.
// `Rounds` derives from it. Its find(next) finds a step that is possible: it returns -1, or else a rank that
// must progress first. A rank is at most `MostAhead` rounds ahead of its own slowest step.
template <class Rounds, std::size_t MostAhead>
class staged_rounds {
 public:
  using step_function = void (Rounds::*)();
  bool done() const noexcept { return ended_ == rounds_; }
  void check() const { others_.check(); }

  // Takes one step that is possible now; returns false if there is none.
  bool step() {
    auto& r = *static_cast<Rounds*>(this);
    step_function next = nullptr;
    if (r.find(next) >= 0) return false;
    (r.*next)();
    return true;
  }
  // Returns -1, or a rank that must progress first.
  int possible() noexcept {
    auto& r = *static_cast<Rounds*>(this);
    step_function next = nullptr;
    const int lacking = r.find(next);
    return r.others_.found_mismatch() ? -1 : lacking;  // to be refused
  }

 protected:
  // A round has a piece of each of `pieces` blocks, the longest of `longest` bytes; pieces are multiples of
  // `unit` bytes. `giver` is the only rank whose data this one reads; -1: those of all.
  staged_rounds(const collective& c, int giver, std::size_t longest, std::size_t pieces,
                std::size_t unit) noexcept
      : c_(c), b_(c.segment()), others_(c, giver) {
    const std::size_t fits = b_.ring_bytes() / 4 / pieces;
    const std::size_t piece = std::clamp(longest / 4, smallest_piece, std::min(largest_piece, fits));
    piece_ = std::max<std::size_t>(1, piece / unit) * unit;
    segment_ = (piece_ + 63) & ~std::size_t{63};
    round_bytes_ = segment_ * pieces;
    rounds_ = (longest + piece_ - 1) / piece_;
    ahead_ = std::clamp<std::size_t>(b_.ring_bytes() / 2 / round_bytes_, 1, MostAhead);
  }

  std::uint64_t start_of(std::size_t round) const noexcept { return starts_[round % MostAhead]; }
  std::uint64_t end_of(std::size_t round) const noexcept { return start_of(round) + round_bytes_; }
  bool may_stage() const noexcept { return staged_ < rounds_ && staged_ - ended_ < ahead_; }
  // The end of the round to be staged next. Its place in the stream is taken once.
  std::uint64_t next_end() noexcept {
    if (taken_ == staged_) starts_[taken_++ % MostAhead] = b_.take(round_bytes_);
    return end_of(staged_);
  }
  // The bytes of a block of `all` bytes that move in a round.
  std::size_t in_round(std::size_t all, std::size_t round) const noexcept {
    const std::size_t begin = round * piece_;
    return begin < all ? std::min(piece_, all - begin) : 0;
  }
  // Returns a rank among first to last - 1 whose word `which` is before `end`, or -1.
  int missing(std::atomic<std::uint64_t> comm::collective_segment::progress_words::* which, std::uint64_t end,
              int first, int last) noexcept {
    // A rank's words are of this operation only when it has arrived at it.
    if (const int rank = others_.poll(); rank >= 0) return rank;
    if (others_.found_mismatch()) return c_.rank();
    for (int r = first; r < last; ++r)
      if (r != c_.rank() && (b_.progress_of(r).*which).load(std::memory_order_acquire) < end) return r;
    return -1;
  }

  static constexpr std::size_t smallest_piece = 16 * 1024;
  static constexpr std::size_t largest_piece = 128 * 1024;

  const collective& c_;
  comm::collective_segment& b_;
  arrivals others_;          // the ranks that this one reads from
  std::size_t piece_ = 0;    // bytes of a block in a round
  std::size_t segment_ = 0;  // the room it has
  std::size_t round_bytes_ = 0;
  std::size_t rounds_ = 0;
  std::size_t ahead_ = 1;
  std::size_t taken_ = 0;  // rounds whose place is known
  std::size_t staged_ = 0;
  std::size_t ended_ = 0;  // from here on this rank reads nothing any more
  std::array<std::uint64_t, MostAhead> starts_{};
};

// ---- data in memory of tutti::shared_allocator ----
//
// If all buffers that others need lie there, every rank reads them in place and nothing is staged. Reading is
// safe: others' memory is mapped read-only and never shrinks. A rank returns only when all have read what they
// need of it. A rank that ends early fails the communicator, and no rank that was still reading succeeds.

// Shorter data are staged, because agreeing costs a second wait.
inline constexpr std::size_t least_direct = 128 * 1024;

// The others' memory by rank; null where there are no bytes.
struct memory_of_others {
  std::array<const std::byte*, comm::collective_segment::most_ranks> data{};
  std::array<const std::byte*, comm::collective_segment::most_ranks> results{};
  bool agreed = false;  // the same on all ranks; false: data must be staged
};

// Waits for room, arrives, and finds out whether all ranks can read what they need. The others may read `data`,
// and `results` when they are there. With a `root` only its data are read; -1: those of all. `whole` is the size
// in bytes of the largest buffer, the same on all ranks. `parts` gives the ranks' data lengths if they differ,
// otherwise null.
task<memory_of_others> arrive_and_agree(collective c, std::span<const std::byte> data,
                                        std::span<const std::byte> results, int root, std::size_t whole,
                                        const blocks* parts);

// Tells that this rank has read the others' memory, up to `end` of the stream. If its own `is_read`, waits until
// all have consumed what comes before `end`. The loop has its turn before: a rank that ended early failed the
// communicator before its program had the buffers back, so that is heard now.
task<> end_reading(collective c, std::uint64_t end, bool is_read);

// An operation of at least so many bytes suspends once before copying the first block, so that starting it is
// cheap.
inline constexpr std::size_t least_to_begin_later = 256 * 1024;

}  // namespace tutti::coll
