// SPDX-License-Identifier: Apache-2.0
// Common steps of algorithms on a collective segment: set-up, waiting for room, waiting for other ranks,
// publishing data that fit in one piece, reading the others' memory in place, and reducing one input of each
// rank.
//
//   publication mine(c, bytes);                // the same on all ranks
//   co_await room_to_write(c, mine.end());     then write mine.data()
//   c.segment().arrive();
//   arrivals others(c);                        await it; then read mine.of(rank)
#pragma once

#include "base/limits.hpp"
#include "coll/algorithms.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tutti/detail/operation_state.hpp>
#include <tutti/task.hpp>

namespace tutti::coll {

// Makes the segments by messages, in the turn of the first operation on them. Ends without any if a rank lacks what
// it needs.
task<> set_up_segments(collective c);

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

// Waits until every other rank, or `only` one, has arrived at this operation. If one was at another operation,
// check() then throws errc::mismatch, naming both calls.
class arrivals : public comm::collective_segment::wait {
 public:
  // `only` -1: all.
  explicit arrivals(const collective& c, int only = -1) noexcept
      : wait(c.segment(), &test, this),
        c_(c),
        next_(only < 0 ? 0 : only),
        last_(only < 0 ? c.size() : only + 1) {}
  void check() const {
    if (mismatched_ >= 0) refuse();
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
  [[noreturn]] void refuse() const;
  const collective& c_;
  int next_;
  int last_;
  int mismatched_ = -1;
};

// Publishes `bytes` bytes of each rank: in its slot if they fit, otherwise in the stream.
class publication {
 public:
  publication(const collective& c, std::size_t bytes) noexcept
      : segment_(&c.segment()),
        in_slot_(bytes <= comm::collective_segment::slot_payload),
        at_(in_slot_ ? 0 : segment_->take(bytes)),
        bytes_(bytes) {}
  std::uint64_t end() const noexcept { return in_slot_ ? 0 : at_ + bytes_; }
  std::byte* data() const noexcept { return in_slot_ ? segment_->payload() : segment_->at(at_); }
  const std::byte* of(int rank) const noexcept {
    return in_slot_ ? segment_->payload_of(rank) : segment_->at(rank, at_);
  }

 private:
  comm::collective_segment* segment_;
  bool in_slot_;
  std::uint64_t at_;
  std::size_t bytes_;
};

// reduce_all of input(rank) of all ranks that give.
template <class Input>
void reduce_of_ranks(const collective& c, const detail::reduction& op, element_type type, const Input& input,
                     void* to, std::size_t count) {
  std::array<const void*, comm::collective_segment::most_ranks> inputs;
  const auto size = static_cast<std::size_t>(c.givers());
  for (std::size_t r = 0; r < size; ++r) inputs[r] = input(static_cast<int>(r));
  reduce_all(op, type, std::span<const void* const>(inputs.data(), size), to, count);
}

// ---- data in memory of tutti::shared_allocator ----
//
// If all buffers that others need lie there, every rank reads them in place and nothing is staged. Reading is
// safe: others' memory is mapped read-only and never shrinks. A rank returns only when all have read what they
// need of it. A rank that ends early fails the communicator, and no rank that was still reading succeeds.

using limits::collectives::least_direct;

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
// all have consumed what comes before `end`. Does not return if a rank ended early and its program had the buffers
// back before they were read: that rank has failed the communicator, which ends this operation.
task<> end_reading(collective c, std::uint64_t end, bool is_read);

// ---- operations with few bytes ----
//
// Every giving rank writes all of its data in one piece. A receiving rank waits for the ranks that it reads
// from, and reads. There is one wait, which often ends before the loop's next turn.

struct posted {
  static constexpr int all = -1;
  static constexpr int nobody = -2;

  static posted broadcast(const collective& c, std::byte* data, std::size_t bytes, int root) noexcept;
  // `r.op` outlives it. `root` gets the result; all: every rank does; nobody: each gets its own slice, the only
  // case in which `slices` matter.
  static posted reduce(const collective& c, const reduce_call& r, const blocks& slices, int root) noexcept;
  static posted all_gather(const collective& c, const std::byte* block, std::byte* result,
                           const blocks& parts) noexcept;
  // `data` and `result` do not overlap.
  static posted all_to_all(const collective& c, const std::byte* data, std::byte* result,
                           const blocks& parts) noexcept;

  bool is_short() const noexcept { return bytes <= limit; }

  static constexpr std::size_t usual_limit = limits::collectives::one_piece_limit;
  std::size_t bytes = 0;             // room for each rank, in bytes: the same on all
  std::size_t limit = usual_limit;   // of `bytes`, for one piece
  const std::byte* given = nullptr;  // what this rank writes
  std::size_t given_bytes = 0;
  const std::byte* own = nullptr;  // this rank's block of the result, perhaps in place; null: there is none
  bool gives_own = true;           // the others read it, too; otherwise a separate block is given to each
  int awaited = all;               // the rank that this one waits for
  // What is read: a reduction, the block of the awaited rank, or the blocks of all; null: nothing.
  std::byte* to = nullptr;
  std::size_t offset = 0;  // in the data of the others
  std::size_t count = 0;   // elements of a reduction
  blocks parts{};          // of the data, by rank
  element_type type{};
  const detail::reduction* op = nullptr;  // null: no reduction; outlives it
};

// What to publish for this call. Not short if the call takes more than one step.
posted posted_for(const detail::call& what, const collective& c) noexcept;

// An operation in two levels with few bytes: what this rank publishes on one segment, and then on the other.
struct posted_steps {
  struct step {
    collective on;
    posted what;
  };
  bool none() const noexcept { return !all.front().has_value(); }
  bool has(std::size_t i) const noexcept { return i < all.size() && all[i].has_value(); }
  void add(const collective& on, const posted& what) noexcept { all[none() ? 0 : 1].emplace(step{on, what}); }

  std::array<std::optional<step>, 2> all;
};

// The steps of a call. None if it takes others (coll/algorithms/groups.cpp): all ranks publish the same either way.
posted_steps steps_for(const detail::call& what, const collective& c) noexcept;

// Carries out the operation, in its turn.
task<> publish_on_segment(collective c, posted what);

// Carries out as much of an operation as it can at once, if that has the segment to itself from its start, and
// records whether this rank's part has been `written`. Returns true if the operation is complete; otherwise
// publish_rest() does what is left. Throws what a user's reduction throws.
bool publish_at_once(const collective& c, const posted& what, const publication& mine, bool& written);
task<> publish_rest(collective c, posted what, publication mine, bool written);
// The same from step `at` on.
task<> publish_rest_of_steps(posted_steps steps, std::size_t at, publication mine, bool written);

}  // namespace tutti::coll
