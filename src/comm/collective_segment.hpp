// SPDX-License-Identifier: Apache-2.0
// collective_segment: memory of each rank of a communicator that all its ranks can read. Collectives of one
// host exchange their data there without messages.
//
// Each rank writes only its own part. A part has words that tell the rank's progress, slots for the data of
// small operations, and a ring. The ring is a stream whose positions are the same on all ranks. Every rank
// computes the same positions from the same calls, so nothing is negotiated. Operations on the segment run
// one after the other, in the order in which they were started; the first one makes the segment.
//
// A rank waits by reading words of others. A rank that changes its words notifies the ranks that sleep.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/ring_copy.hpp"
#include "core/loop.hpp"
#include "p2p/endpoint.hpp"
#include "transport/transport.hpp"

#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tutti/error.hpp>
#include <vector>

namespace tutti::comm {

struct segment_turn_tag;

class collective_segment final : public core::source {
 public:
  static constexpr int most_ranks = 32;
  static constexpr std::size_t slots = 32;         // operations that a rank may be ahead of the slowest
  static constexpr std::size_t slot_payload = 32;  // bytes
  // The longest element that is reduced on a segment, of however many ranks: with two levels, the segments of a
  // communicator's ranks differ in that.
  static constexpr std::size_t most_element_bytes = 8 * 1024;

  enum class condition { unmade, usable, unusable };

  // Where some bytes of a rank lie in memory that others can map; region 0: they cannot.
  struct location {
    std::uint64_t region = 0;
    std::uint64_t offset = 0;
  };
  // Where a rank's part lies; region 0: it has none.
  struct handle : location {
    std::uint64_t mark = 0;  // random: distinguishes the part from later contents of the same memory
  };

  // The progress of a rank. Positions in the stream only grow. Stored with release and loaded with acquire: whoever
  // has seen a word may read the data before it, or write over what its rank has read.
  struct progress_words {
    std::atomic<std::uint64_t> staged;    // data before this position are in the stream for the others
    std::atomic<std::uint64_t> reduced;   // results before this position are in the stream
    std::atomic<std::uint64_t> consumed;  // this rank has finished reading before this position
    std::atomic<std::uint64_t> finished;  // number of operations
    std::atomic<std::uint64_t> mark;
    std::atomic<std::uint64_t> withdrawn;  // the first operation that this rank left unfinished; 0: none
  };

  // `members` are ranks of the world.
  collective_segment(core::loop& loop, transport::neighbours& near, std::span<const int> members, int rank);
  collective_segment(const collective_segment&) = delete;
  collective_segment& operator=(const collective_segment&) = delete;
  ~collective_segment() override;

  // ---- set-up, in the turn of the first operation ----
  // The ranks exchange endpoint records, then show their parts, then map each other's.
  condition state() const noexcept { return state_; }
  handle make_part() noexcept;
  bool show_part() noexcept;  // to all; the links to them are open
  bool find_part(int rank, const handle& theirs) noexcept;
  void decide(bool usable) noexcept;

  // ---- an operation ----

  // Resumes the coroutine that awaits it.
  class resumption : public core::completion {
   public:
    void await_suspend(std::coroutine_handle<> h) noexcept;

   protected:
    ~resumption() { static_cast<base::list_hook<core::ready_tag>&>(*this).unlink(); }
    std::coroutine_handle<> waiting_;
  };

  // A place in the order of operations, taken on construction. Awaited once; finish() gives the segment to
  // the next. Destroying an unfinished turn withdraws this rank from the segment: its communicator has failed.
  class turn : public resumption, public base::list_hook<segment_turn_tag> {
   public:
    explicit turn(collective_segment& b) noexcept : segment_(b) { b.turns_.push_back(*this); }
    ~turn() {
      if (await_ready()) segment_.withdraw();
      static_cast<base::list_hook<segment_turn_tag>&>(*this).unlink();
    }
    bool await_ready() const noexcept { return segment_.turns_.front() == this; }
    void await_resume() const noexcept {}
    void finish() noexcept;

   private:
    friend class collective_segment;
    collective_segment& segment_;
  };

  // Starts the operation of the current turn: its place in the communicator's order, and what all ranks must
  // agree on.
  void begin(std::uint32_t sequence, const p2p::fingerprint& print) noexcept;
  // Ends the use of the segment. Ranks that wait for room are notified when this rank arrives at its next
  // operation, or when its loop turns.
  void finish() noexcept;

  // This rank's slot. It may be written when room_for() allows it; arrive() publishes it to all.
  std::byte* payload() noexcept { return own_slot().payload; }
  void arrive() noexcept;
  enum class arrival { not_yet, here, other };  // other: at another operation, or after a different history
  arrival check_arrival(int rank) noexcept;
  const std::byte* payload_of(int rank) const noexcept { return slot_of(rank).payload; }
  std::uint32_t sequence_of(int rank) const noexcept { return slot_of(rank).sequence; }
  const p2p::fingerprint& fingerprint_of(int rank) const noexcept { return slot_of(rank).print; }
  // Whether the latest operation that has begun here is collective `sequence`; `print()` is what it agrees on.
  bool is_last(std::uint32_t sequence) const noexcept {
    return state_ == condition::usable && operation_ > 0 && sequence_ == sequence;
  }
  const p2p::fingerprint& print() const noexcept { return print_; }

  // ---- reading data in place, not in parts ----

  // Shows the region of [data, data + bytes) to all. Returns an empty location if it is not shared memory, or
  // a rank cannot be told.
  location show(const void* data, std::size_t bytes) noexcept;
  // Returns what another rank has shown; null if it cannot be mapped.
  const std::byte* find_memory(int rank, const location& theirs, std::size_t bytes) noexcept {
    return near_.find_memory(members_[static_cast<std::size_t>(rank)], theirs.region, theirs.offset, bytes);
  }
  // Whether `rank` ended this operation early. Its program has the buffers back, and may have changed what this rank
  // has just read there.
  bool has_withdrawn(int rank) const noexcept;
  // Each rank's vote, once per operation, after arriving.
  enum class opinion : std::uint8_t { none, yes, no };
  void vote(bool yes) noexcept;
  opinion vote_of(int rank) const noexcept {
    return static_cast<opinion>(slot_of(rank).vote.load(std::memory_order_acquire));
  }

  // Takes the next `bytes` bytes of the stream as one piece: at most half of the ring. Ranks that take the
  // same sizes get the same positions.
  std::uint64_t take(std::size_t bytes) noexcept;
  std::size_t ring_bytes() const noexcept { return ring_bytes_; }
  std::byte* at(std::uint64_t position) noexcept { return own_ring_ + position % ring_bytes_; }
  // Writes into this rank's part.
  void write(void* to, const void* from, std::size_t bytes) noexcept {
    writer_.copy(to, from, bytes);
    written_ += bytes;
  }
  const std::byte* at(int rank, std::uint64_t position) const noexcept {
    return other(rank).part + ring_offset + position % ring_bytes_;
  }
  // Returns -1 if this rank may write its slot and the stream up to `end`. Otherwise returns a rank that must
  // read further first.
  int room_for(std::uint64_t end) noexcept;

  const progress_words& progress_of(int rank) const noexcept {
    return *reinterpret_cast<const progress_words*>(other(rank).part);
  }
  void say_staged(std::uint64_t end) noexcept { say(own_progress().staged, end); }
  void say_reduced(std::uint64_t end) noexcept { say(own_progress().reduced, end); }
  void say_consumed(std::uint64_t end) noexcept { say(own_progress().consumed, end); }

  // Records that `rank` writes nothing any more. Ranks that wait for it fail with `why`, after they have seen
  // what it wrote before.
  void rank_gone(int rank, errc why, const std::string& text) noexcept;

  // A wait for other ranks. `ready` returns -1 when the wait is over, or else the rank that is waited for; it
  // is called repeatedly. A null `ready` waits only until the loop has had its turn.
  class wait : public resumption {
   public:
    using test = int (*)(void* context) noexcept;
    wait(collective_segment& b, test ready, void* context) noexcept
        : segment_(b), ready_(ready), context_(context) {}
    explicit wait(collective_segment& b) noexcept : wait(b, nullptr, nullptr) {}
    ~wait() {
      if (segment_.waiting_ == this) segment_.waiting_ = nullptr;
    }

    bool await_ready() noexcept { return ready_ != nullptr && segment_.poll(*this); }
    void await_suspend(std::coroutine_handle<> h) noexcept {
      resumption::await_suspend(h);
      segment_.waiting_ = this;
    }
    void await_resume() {
      if (failure() != errc::success) throw error(failure(), take_text());
    }

   private:
    friend class collective_segment;
    collective_segment& segment_;
    test ready_;
    void* context_;
  };
  // Polls for a short while without the loop. Returns true if the wait is over. Otherwise await it: the loop
  // may be due.
  bool poll(wait& w) noexcept;
  // Whether a collective has been started that uses it. Then its memory is there, or is being made.
  void want() noexcept { wanted_ = true; }
  bool wanted() const noexcept { return wanted_; }
  // Whether no operation is in progress or waiting for its turn.
  bool free() const noexcept { return state_ == condition::usable && turns_.empty(); }
  // The rank (of the communicator) that operation `sequence` waits for, or -1.
  int waits_for(std::uint32_t sequence) const noexcept {
    return waiting_ != nullptr && sequence == sequence_ ? missing_ : -1;
  }

  // Ends this rank's use: its communicator has been closed. If that had `failed`, others may begin operations that this
  // rank has not, and they need its part until they leave, too.
  void leave(bool failed) noexcept;
  // Whether the others have read all that this rank has written. Do not destroy the segment earlier, except
  // after keep_part(), which keeps its memory: readers must not find other contents there.
  bool can_go() const noexcept;
  void keep_part() noexcept {
    if (owes_notice_) notify();
    own_ = nullptr;
  }

  bool poll() noexcept override;
  bool arm() noexcept override { return poll(); }

 private:
  struct slot {
    std::atomic<std::uint64_t> stamp;  // number of the operation on the segment; written last, with release
    std::uint32_t sequence;
    std::uint16_t history;
    std::atomic<std::uint8_t> vote;
    p2p::fingerprint print;
    alignas(slot_payload) std::byte payload[slot_payload];
  };
  static_assert(sizeof(slot) == 64);
  // Words and slots are 128 bytes apart, because many processors fetch adjacent lines together.
  static constexpr std::size_t apart = 128;
  static constexpr std::size_t ring_offset = 8192;
  static_assert((1 + slots) * apart <= ring_offset);

  // What this rank knows of another one.
  struct known_rank {
    const std::byte* part = nullptr;
    const std::atomic<std::uint32_t>* sleeps = nullptr;
    std::uint64_t consumed = 0, finished = 0;  // lower bounds
    std::uint64_t mark = 0;
  };

  known_rank& other(int rank) noexcept { return others_[static_cast<std::size_t>(rank)]; }
  const known_rank& other(int rank) const noexcept { return others_[static_cast<std::size_t>(rank)]; }
  std::uint16_t history() const noexcept { return static_cast<std::uint16_t>(history_ >> 48); }
  // The number of operations that a rank has finished when it has left.
  static constexpr std::uint64_t all_operations = std::uint64_t{1} << 62;
  // Where the slot of an operation begins in a part.
  static std::size_t slot_offset(std::uint64_t operation) noexcept { return (1 + operation % slots) * apart; }
  slot& own_slot() noexcept { return *reinterpret_cast<slot*>(own_ + slot_offset(operation_)); }
  const slot& slot_of(int rank) const noexcept {
    return *reinterpret_cast<const slot*>(other(rank).part + slot_offset(operation_));
  }
  progress_words& own_progress() noexcept { return *reinterpret_cast<progress_words*>(own_); }
  void say(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
    word.store(value, std::memory_order_release);
    notify();
  }
  // Called before the program has the buffers of the operation back.
  void withdraw() noexcept;
  const p2p::departure* why_in_vain() const noexcept;
  void notify() noexcept;
  void release() noexcept;
  // Maps the stream up to `end` and further, in its first lap.
  void populate(std::uint64_t end) noexcept;

  core::loop& loop_;
  transport::neighbours& near_;
  const std::vector<int> members_;
  const int rank_;
  const int size_;
  const std::size_t ring_bytes_;
  condition state_ = condition::unmade;
  bool wanted_ = false;
  bool watched_ = false;
  bool owes_notice_ = false;  // finish() has changed words since the last notify()
  std::byte* own_ = nullptr;
  std::byte* own_ring_ = nullptr;
  std::vector<known_rank> others_;  // by rank
  base::ring_writer writer_;
  base::intrusive_list<turn, segment_turn_tag> turns_;  // the front has the segment
  std::uint64_t operation_ = 0;                         // number of the latest turn that has begun; from 1
  std::uint64_t position_ = 0;
  std::size_t populated_ = 0;   // bytes of the ring
  std::uint64_t begun_at_ = 0;  // stream position before the operation
  std::size_t written_ = 0;     // bytes that this rank has written in the operation
  std::uint32_t sequence_ = 0;
  p2p::fingerprint print_{};
  std::uint64_t history_ = 0;             // hash of the fingerprints of all earlier operations
  std::vector<p2p::departure> departed_;  // by rank, errc::success: it has not gone; empty: none has
  wait* waiting_ = nullptr;
  int missing_ = -1;
  unsigned at_once_ = 0;  // number of waits that may still end without the loop
};

}  // namespace tutti::comm
