// SPDX-License-Identifier: Apache-2.0
// Algorithms on a collective segment. Few bytes go in one piece (coll/segment_steps.hpp).
//
// Long vectors are copied and reduced in rounds. Each rank stages a piece of what the others need, and reads
// pieces of others while they are in cache. Rounds overlap: a rank takes whatever step the others have made
// possible. Data in memory that all can read are not staged.
#include "base/shared_memory.hpp"
#include "base/ring_copy.hpp"
#include "coll/algorithms.hpp"
#include "coll/segment_steps.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <span>

namespace tutti::coll {
namespace {

using comm::collective_segment;
using limits::collectives::largest_piece;
using limits::collectives::smallest_piece;
using progress_words = collective_segment::progress_words;

// An operation of at least so many bytes suspends once before copying the first block, so that starting it is
// cheap.
constexpr std::size_t least_to_begin_later = 256 * 1024;

// Bounds how long an operation copies before the loop gets a turn.
class own_turn {
 public:
  explicit own_turn(const collective& c) noexcept : platform_(c.comm().loop().engine().platform()) {
    begin();
  }
  void begin() noexcept { ends_ = platform_.now() + longest; }
  bool is_over() const noexcept { return platform_.now() >= ends_; }

 private:
  static constexpr auto longest = std::chrono::microseconds(100);
  core::platform& platform_;
  core::time_point ends_;
};

// Takes steps as they become possible, until all rounds have ended.
template <class Rounds>
task<> work_off(collective c, Rounds* r) {
  own_turn turn(c);
  while (!r->done()) {
    r->check();
    if (r->step()) {
      if (!turn.is_over()) continue;
      co_await collective_segment::wait(c.segment());
    } else {
      co_await until(c, [r] { return r->possible(); });
    }
    turn.begin();
  }
}

// Rounds in which ranks stage pieces of blocks in the stream: what copies and reductions share. `Rounds` derives
// from it. Its find() finds a step that is possible, if there is one. A rank is at most `MostAhead` rounds ahead of
// its own slowest step.
template <class Rounds, std::size_t MostAhead>
class staged_rounds {
 public:
  using step_function = void (Rounds::*)();
  struct search {
    // Whether `step` is due and possible: lacks() returns -1, or a rank that must progress first.
    template <class Lacks>
    bool finds(bool due, step_function step, const Lacks& lacks) {
      if (!due) return false;
      next = step;
      const int rank = lacks();
      if (lacking < 0) lacking = rank;
      return rank < 0;
    }
    step_function next = nullptr;
    int lacking = -1;  // what the first step that is due lacks
  };
  bool done() const noexcept { return ended_ == rounds_; }
  void check() const { others_.check(); }

  // Takes one step that is possible now; returns false if there is none.
  bool step() {
    search s;
    auto& r = *static_cast<Rounds*>(this);
    if (!r.find(s)) return false;
    (r.*s.next)();
    return true;
  }
  // Returns -1, or a rank that must progress first.
  int possible() noexcept {
    search s;
    const bool found = static_cast<Rounds*>(this)->find(s);
    return found || others_.found_mismatch() ? -1 : s.lacking;  // to be refused
  }

 protected:
  // A round has a piece of each of `pieces` blocks, the longest of `longest` bytes; pieces are multiples of
  // `unit` bytes. `giver` is the only rank whose data this one reads; -1: those of all.
  staged_rounds(const collective& c, int giver, std::size_t longest, std::size_t pieces,
                std::size_t unit) noexcept
      : c_(c), b_(c.segment()), giver_(giver), others_(c, giver) {
    const std::size_t fits = b_.ring_bytes() / 4 / pieces;
    divide(longest, std::min({std::max(longest / 4, smallest_piece), largest_piece, fits}), unit);
    segment_ = (piece_ + 63) & ~std::size_t{63};
    round_bytes_ = segment_ * pieces;
    ahead_ = std::clamp<std::size_t>(b_.ring_bytes() / 2 / round_bytes_, 1, MostAhead);
  }
  void divide(std::size_t longest, std::size_t piece, std::size_t unit) noexcept {
    piece_ = std::max<std::size_t>(1, piece / unit) * unit;
    rounds_ = (longest + piece_ - 1) / piece_;
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
  // Returns a rank that this one reads from whose word `which` is before `end`, or -1.
  int missing(std::atomic<std::uint64_t> progress_words::* which, std::uint64_t end) noexcept {
    // A rank's words are of this operation only when it has arrived at it.
    if (const int rank = others_.poll(); rank >= 0) return rank;
    if (others_.found_mismatch()) return c_.rank();
    for (int r = 0; r < c_.size(); ++r) {
      const bool is_read = r != c_.rank() && (giver_ < 0 || r == giver_);
      if (is_read && (b_.progress_of(r).*which).load(std::memory_order_acquire) < end) return r;
    }
    return -1;
  }

  const collective& c_;
  collective_segment& b_;
  const int giver_;
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

// ---- copies ----

// The only rank that gives; -1: all do.
int giver_of(const collective& c, const posted& p) noexcept {
  return p.awaited == posted::nobody ? c.rank() : p.awaited;
}
// Bytes of the longest block that moves, the same on all ranks.
std::size_t longest_of(const collective& c, const posted& p) noexcept {
  return p.gives_own ? p.bytes : p.parts.bytes(c.rank());
}

// A block in the results of this rank.
std::span<std::byte> block_from(int giver, const posted& p) noexcept {
  return p.awaited >= 0 ? std::span(p.to, p.bytes) : p.parts.of(p.to, giver);
}
// This rank's block for itself. It is copied piece by piece with the given data, which often are the same and
// then in cache.
std::span<std::byte> own_block(const collective& c, const posted& p) noexcept {
  return p.own == nullptr ? std::span<std::byte>() : block_from(c.rank(), p);
}

class movement_rounds : public staged_rounds<movement_rounds, 16> {
 public:
  movement_rounds(const collective& c, const posted& what) noexcept
      : staged_rounds(c, giver_of(c, what), longest_of(c, what),
                      what.gives_own ? 1 : static_cast<std::size_t>(c.size()) - 1, 64),
        w_(what),
        own_(own_block(c, what)),
        gives_(giver_ < 0 || giver_ == c.rank()),
        receives_(giver_ != c.rank()) {}

  bool find(search& s) noexcept {
    return s.finds(ended_ < staged_, &movement_rounds::read,
                   [&] { return receives_ ? missing(&progress_words::staged, end_of(ended_)) : -1; }) ||
           s.finds(may_stage(), &movement_rounds::stage,
                   [&] { return gives_ ? b_.room_for(next_end()) : -1; });
  }

 private:
  void put(std::uint64_t to, const std::byte* block, std::size_t all) noexcept {
    const std::size_t bytes = in_round(all, staged_);
    if (bytes > 0) b_.write(b_.at(to), block + staged_ * piece_, bytes);
  }

  // The offset, in a round's place, of the data of `giver` for `reader`.
  std::size_t segment(int giver, int reader) const noexcept {
    return w_.gives_own ? 0 : static_cast<std::size_t>((reader - giver - 1 + c_.size()) % c_.size()) * piece_;
  }

  void stage() noexcept {
    next_end();
    const std::uint64_t to = start_of(staged_);
    if (gives_ && w_.gives_own) put(to, w_.given, w_.given_bytes);
    for (int i = 1; gives_ && !w_.gives_own && i < c_.size(); ++i) {
      const int block = (c_.rank() + i) % c_.size();
      put(to + segment(c_.rank(), block), w_.given + w_.parts.begin(block), w_.parts.bytes(block));
    }
    if (gives_) b_.say_staged(end_of(staged_));
    const std::size_t kept = in_round(own_.size(), staged_);
    if (kept > 0) std::memcpy(own_.data() + staged_ * piece_, w_.own + staged_ * piece_, kept);
    ++staged_;
  }
  void read() noexcept {
    const std::uint64_t from = start_of(ended_);
    for (int i = 1; receives_ && i < c_.size(); ++i) {
      const int giver = (c_.rank() + i) % c_.size();
      if (giver_ >= 0 && giver != giver_) continue;
      const std::span<std::byte> block = block_from(giver, w_);
      const std::size_t bytes = in_round(block.size(), ended_);
      if (bytes > 0)
        base::copy_out(block.data() + ended_ * piece_, b_.at(giver, from + segment(giver, c_.rank())), bytes);
    }
    b_.say_consumed(end_of(ended_++));
  }

  const posted& w_;
  const std::span<std::byte> own_;
  const bool gives_;
  const bool receives_;
};

constexpr std::size_t copied_at_once = 256 * 1024;

// Every rank reads its data where their giver has them.
task<> move_directly(collective c, const posted* w, const memory_of_others* others) {
  collective_segment& b = c.segment();
  const std::uint64_t end = b.take(64) + 64;  // nothing is written there
  const int root = giver_of(c, *w);
  own_turn turn(c);
  for (int i = 0; i < c.size(); ++i) {
    const int giver = (c.rank() + i) % c.size();
    const bool own = i == 0;
    if (!own && root >= 0 && giver != root) continue;
    const std::span<std::byte> block = own ? own_block(c, *w) : block_from(giver, *w);
    const std::byte* const from =
        own ? w->own
            : others->data[static_cast<std::size_t>(giver)] + (w->gives_own ? 0 : w->parts.begin(c.rank()));
    for (std::size_t at = 0; at < block.size(); at += copied_at_once) {
      std::memcpy(block.data() + at, from + at, std::min(copied_at_once, block.size() - at));
      if (!turn.is_over()) continue;
      co_await collective_segment::wait(b);
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
  if (whole >= least_to_begin_later) co_await collective_segment::wait(c.segment());
  if (others.agreed) {
    co_await move_directly(c, &what, &others);
  } else {
    movement_rounds staged(c, what);
    co_await work_off(c, &staged);
  }
}

task<> copy_on_segment(collective c, const posted& what) {
  return what.is_short() ? publish_on_segment(c, what) : copy_in_rounds(c, what);
}

// ---- reductions ----

// Each rank stages a piece of every slice for the rank that reduces that slice. It reduces a piece of its own
// slice, and collects pieces of the others' results. If the ranks have agreed to read the memory of `others`,
// nothing is staged: slices are reduced in place, and results are collected from where they were written.
class reduction_rounds : public staged_rounds<reduction_rounds, 8> {
 public:
  // `input` is prepared; slice r is reduced by rank r. `root` gets the whole result; posted::all: every rank does;
  // posted::nobody: each gets its own slice.
  reduction_rounds(const collective& c, const reduce_call& r, const blocks& slices, int root,
                   const memory_of_others& others) noexcept
      : staged_rounds(c, -1, slices.longest(c.size()), static_cast<std::size_t>(c.size()), r.element_bytes),
        r_(r),
        slices_(slices),
        others_memory_(others),
        collects_(root == posted::all || root == c.rank()),
        shown_(root != posted::nobody && root != c.rank()),
        result_(collects_                ? r.data + slices.begin(c.rank())
                : root == posted::nobody ? r.data
                                         : nullptr) {
    if (!others.agreed) return;
    const std::size_t longest = slices.longest(c.size());
    divide(longest, std::max(direct_piece, longest / most_pieces + 1), r.element_bytes);
    round_bytes_ = 64;  // of the stream: nothing is written there
    direct_start_ = b_.take(rounds_ * round_bytes_);
    staged_ = rounds_;
  }

  bool find(search& s) noexcept {
    const bool direct = others_memory_.agreed;
    return s.finds(collects_ && ended_ < reduced_, &reduction_rounds::collect, [&] {
      return missing(&progress_words::reduced, end_of(ended_));
    }) || s.finds(reduced_ < staged_, &reduction_rounds::reduce, [&] {
      return direct ? -1 : missing(&progress_words::staged, end_of(reduced_));
    }) || s.finds(may_stage(), &reduction_rounds::stage, [&] { return b_.room_for(next_end()); });
  }
  // The end of all rounds in the stream.
  std::uint64_t end() const noexcept { return end_of(rounds_ - 1); }

 private:
  static constexpr std::size_t direct_piece = 128 * 1024;
  static constexpr std::size_t most_pieces = 4096;

  std::uint64_t end_of(std::size_t round) const noexcept {
    return others_memory_.agreed ? direct_start_ + (round + 1) * round_bytes_ : staged_rounds::end_of(round);
  }
  std::size_t bytes_of(int slice, std::size_t round) const noexcept {
    return in_round(slices_.bytes(slice), round);
  }
  // Where the piece of a slice begins in a vector, and in the stream.
  std::size_t offset(int slice, std::size_t round) const noexcept {
    return slices_.begin(slice) + round * piece_;
  }
  std::uint64_t at(int slice, std::size_t round) const noexcept {
    return start_of(round) + static_cast<std::size_t>(slice) * segment_;
  }

  void stage() noexcept {
    for (int i = 1; i < c_.size(); ++i) {
      const int slice = (c_.rank() + i) % c_.size();
      const std::size_t bytes = bytes_of(slice, staged_);
      if (bytes > 0) b_.write(b_.at(at(slice, staged_)), r_.input + offset(slice, staged_), bytes);
    }
    b_.say_staged(end_of(staged_++));
  }

  void reduce() {
    const int own = c_.rank();
    const std::size_t round = reduced_++, bytes = bytes_of(own, round), from = offset(own, round);
    const auto input = [&](int r) {
      if (r == own) return r_.input + from;
      return others_memory_.agreed ? others_memory_.data[static_cast<std::size_t>(r)] + from
                                   : b_.at(r, at(own, round));
    };
    std::byte* const to = result_ != nullptr ? result_ + round * piece_ : b_.at(at(own, round));
    if (bytes > 0) {
      reduce_of_ranks(c_, r_.op, r_.type, input, to, bytes / r_.element_bytes);
      if (shown_ && result_ != nullptr && !others_memory_.agreed) b_.write(b_.at(at(own, round)), to, bytes);
    }
    if (shown_) b_.say_reduced(end_of(round));
    if (!collects_) b_.say_consumed(end_of(ended_++));
  }

  void collect() noexcept {
    for (int i = 1; i < c_.size(); ++i) {
      const int slice = (c_.rank() + i) % c_.size();
      const std::size_t bytes = bytes_of(slice, ended_), to = offset(slice, ended_);
      if (bytes == 0) continue;
      if (others_memory_.agreed)
        std::memcpy(r_.data + to, others_memory_.results[static_cast<std::size_t>(slice)] + to, bytes);
      else
        base::copy_out(r_.data + to, b_.at(slice, at(slice, ended_)), bytes);
    }
    b_.say_consumed(end_of(ended_++));
  }

  const reduce_call& r_;
  const blocks& slices_;
  const memory_of_others& others_memory_;
  const bool collects_;      // this rank wants the whole result
  const bool shown_;         // others want the results
  std::byte* const result_;  // place of this rank's slice; null: only others want it
  std::uint64_t direct_start_ = 0;
  std::size_t reduced_ = 0;
};

// Ends when this rank has what it wants and has done its part for the others. `root` as for the rounds.
task<> reduce_in_rounds(collective c, reduce_call r, blocks slices, int root) {
  const std::size_t all = slices.bytes(0, c.size());
  const std::size_t whole = root < 0 ? all : 0;  // otherwise not all want the same: nothing is read in place
  const std::span input(r.input, whole);
  const std::span results(r.data, root == posted::all ? whole : 0);
  const memory_of_others others = co_await arrive_and_agree(c, input, results, -1, whole, nullptr);
  if (all >= least_to_begin_later) co_await collective_segment::wait(c.segment());
  reduction_rounds rounds(c, r, slices, root, others);
  co_await work_off(c, &rounds);
  if (!others.agreed) co_return;
  co_await end_reading(c, rounds.end(), true);
}

task<> reduce_on_segment(collective c, reduce_call r, const blocks& slices, int root) {
  const posted all = posted::reduce(c, r, slices, root);
  return all.is_short() ? publish_on_segment(c, all) : reduce_in_rounds(c, r, slices, root);
}

}  // namespace

// Every rank publishes that it has arrived, and reads the others' words: one line written, P-1 read.
task<> barrier_shared_memory(collective c) {
  if (c.groups() != nullptr) return barrier_in_groups(c);
  return publish_on_segment(c, posted{});
}

// The root writes, the others read: n bytes written, n read by each, one wait.
task<> broadcast_shared_memory(collective c, std::byte* data, std::size_t bytes, int root) {
  if (c.groups() != nullptr) return broadcast_in_groups(c, data, bytes, root);
  return copy_on_segment(c, posted::broadcast(c, data, bytes, root));
}

// Every rank writes its block and reads those of the others: n/P bytes written, (P-1)/P n read, one wait.
task<> all_gather_shared_memory(collective c, const std::byte* block, std::byte* data, blocks parts) {
  if (c.groups() != nullptr) return all_gather_in_groups(c, block, data, parts);
  posted what = posted::all_gather(c, block, data, parts);
  std::byte* const own = data + parts.begin(c.rank());
  // If all ranks can read the results, or its block is in place already, this rank's block is given from there.
  if (!what.is_short() && (block == own || base::find_shared(own, what.given_bytes))) {
    move_bytes(own, block, what.given_bytes);
    what.given = own;
    what.own = nullptr;
  }
  return copy_on_segment(c, what);
}

// Every rank writes its blocks for the others and reads theirs for it: (P-1)/P n bytes written, as many read,
// one wait.
task<> all_to_all_shared_memory(collective c, const std::byte* data, blocks parts, std::byte* result,
                                blocks) {
  return copy_on_segment(c, posted::all_to_all(c, data, result, parts));
}

// Short vectors: every rank writes its own, and the root reduces them: n bytes written by each, (P-1) n read
// by the root. Long vectors in rounds: each rank reduces a slice, and the root collects the slices. Root -1:
// all ranks reduce the vectors, or collect the slices.
task<> reduce_shared_memory(collective c, reduce_call r, int root) {
  if (c.groups() != nullptr) return reduce_in_groups(c, r, root);
  return reduce_on_segment(c, r, blocks::split(r.count, c.size(), r.element_bytes), root);
}

// Short vectors: n bytes written, (P-1) n read, one wait. Long ones: n bytes written and 2 (P-1)/P n read,
// each once and while in cache. Either way all ranks use the same order of operands, and get the same bits.
task<> all_reduce_shared_memory(collective c, reduce_call r) {
  if (c.groups() != nullptr) return all_reduce_in_groups(c, r);
  return reduce_shared_memory(c, r, posted::all);
}

// Every rank writes its vector, and reduces its block of all: n bytes written, (P-1)/P n read. Long vectors
// in rounds, with the same bytes.
task<> reduce_scatter_shared_memory(collective c, reduce_call r, blocks parts) {
  if (c.groups() != nullptr) return reduce_scatter_in_groups(c, r, parts);
  return reduce_on_segment(c, r, parts, posted::nobody);
}

}  // namespace tutti::coll
