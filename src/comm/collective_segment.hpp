// SPDX-License-Identifier: Apache-2.0
// Memory of each rank of a communicator that all its ranks read: collectives of one host exchange their data
// on it, without messages.
//
// Every rank writes its own part and nothing else: a few words that say how far it is, slots with the data of
// small operations, and a ring for the others, a stream of which all ranks use the same positions. Since
// every rank computes the same positions from the same calls, nothing is negotiated. Operations on the
// segment follow one another in the order in which they were started; the first to come makes it.
//
// A rank waits for words of others. A rank that writes one notifies those that sleep.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/ring_copy.hpp"
#include "core/loop.hpp"
#include "p2p/endpoint.hpp"
#include "transport/neighbours.hpp"

#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::comm {

struct segment_turn_tag;

class collective_segment final : public core::source {
 public:
  static constexpr int most_ranks = 16;
  static constexpr std::size_t slots = 32;         // operations that a rank may be ahead of the slowest
  static constexpr std::size_t slot_payload = 32;  // bytes

  enum class condition { unmade, usable, unusable };

  // Where a rank's part lies; region 0: it has none.
  struct handle {
    std::uint64_t region = 0;
    std::uint64_t offset = 0;
    std::uint64_t mark = 0;  // random: what lies there later is something else
  };

  // How far a rank is. Positions of the stream never begin again.
  struct progress_words {
    std::atomic<std::uint64_t> staged;    // before it, what others need of this rank is there
    std::atomic<std::uint64_t> reduced;   // before it, this rank's results are there
    std::atomic<std::uint64_t> consumed;  // before it, this rank reads nothing any more
    std::atomic<std::uint64_t> finished;  // operations
    std::atomic<std::uint64_t> mark;
  };

  // `members`: ranks of the world.
  collective_segment(core::loop& loop, transport::neighbours& near, std::span<const int> members, int rank);
  collective_segment(const collective_segment&) = delete;
  collective_segment& operator=(const collective_segment&) = delete;
  ~collective_segment() override;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  // ---- making it, in the turn of the first operation ----
  // Endpoint records are exchanged, then parts shown, then looked at.
  condition state() const noexcept { return state_; }
  handle make_part() noexcept;
  bool show_part() noexcept;  // to all; links to them are open
  bool find_part(int rank, const handle& theirs) noexcept;
  void decide(bool usable) noexcept;

  // ---- an operation ----

  // A place in the order of operations, taken when it is made. Awaited once; finish() gives the segment to
  // the next. One that is destroyed unfinished leaves it unusable: its communicator has failed.
  class turn : public core::completion, public base::list_hook<segment_turn_tag> {
   public:
    explicit turn(collective_segment& b) noexcept : segment_(b) { b.turns_.push_back(*this); }
    ~turn() {
      static_cast<base::list_hook<core::ready_tag>&>(*this).unlink();
      static_cast<base::list_hook<segment_turn_tag>&>(*this).unlink();
    }
    bool has_come() const noexcept { return segment_.turns_.front() == this; }
    void finish() noexcept;

    struct awaiter {
      turn* self;
      bool await_ready() const noexcept { return self->has_come(); }
      void await_suspend(std::coroutine_handle<> h) const noexcept;
      void await_resume() const noexcept {}
    };
    awaiter operator co_await() & noexcept { return awaiter{this}; }

   private:
    friend class collective_segment;
    collective_segment& segment_;
    std::coroutine_handle<> waiting_;
  };

  // The operation whose turn it is: its place in the communicator's order, and what all ranks must agree on.
  void begin(std::uint32_t sequence, const p2p::fingerprint& print) noexcept;
  // It has done with the segment. Ranks that wait for room are notified when this rank arrives at its next
  // operation, or else when its loop turns.
  void finish() noexcept;

  // This rank's slot may be written when room_for() says so, and is shown to all by arrive().
  std::byte* payload() noexcept { return slot_of(own_).payload; }
  void arrive() noexcept;
  enum class arrival { not_yet, here, other };  // other: with another operation, or after others than ours
  arrival check_arrival(int rank) noexcept;
  const std::byte* payload_of(int rank) const noexcept {
    return slot_of(views_[static_cast<std::size_t>(rank)]).payload;
  }
  std::uint32_t sequence_of(int rank) const noexcept {
    return slot_of(views_[static_cast<std::size_t>(rank)]).sequence;
  }
  const p2p::fingerprint& fingerprint_of(int rank) const noexcept {
    return slot_of(views_[static_cast<std::size_t>(rank)]).print;
  }

  // ---- reading where the others' data lie, without their parts ----

  // Where some bytes of a rank lie in memory that others can map; region 0: they do not.
  struct location {
    std::uint64_t region = 0;
    std::uint64_t offset = 0;
  };
  // Shows the region of [data, data + bytes) to all; empty when it is no shared memory, or one of them cannot
  // be told.
  location show(const void* data, std::size_t bytes) noexcept;
  // What another rank has shown; null when it cannot be mapped.
  const std::byte* find_memory(int rank, const location& theirs, std::size_t bytes) noexcept {
    return near_.find_memory(members_[static_cast<std::size_t>(rank)], theirs.region, theirs.offset, bytes);
  }
  // One vote of each rank per operation, after arriving.
  enum class opinion : std::uint8_t { none, yes, no };
  void vote(bool yes) noexcept;
  opinion vote_of(int rank) const noexcept {
    return static_cast<opinion>(
        slot_of(views_[static_cast<std::size_t>(rank)]).vote.load(std::memory_order_acquire));
  }

  // The next `bytes` bytes of the stream, in one piece; the same position on all ranks that take the same. At
  // most half of the ring.
  std::uint64_t take(std::size_t bytes) noexcept;
  std::size_t ring_bytes() const noexcept { return ring_bytes_; }
  std::byte* at(std::uint64_t position) noexcept { return own_ring_ + position % ring_bytes_; }
  // Into this rank's part.
  void write(void* to, const void* from, std::size_t bytes) noexcept { base::copy_in(to, from, bytes); }
  const std::byte* at(int rank, std::uint64_t position) const noexcept {
    return views_[static_cast<std::size_t>(rank)] + ring_offset + position % ring_bytes_;
  }
  // -1 when this rank may write its slot, and the stream up to `end`; else a rank that must have read on
  // before.
  int room_for(std::uint64_t end) noexcept;

  const progress_words& progress_of(int rank) const noexcept {
    return *reinterpret_cast<const progress_words*>(views_[static_cast<std::size_t>(rank)]);
  }
  void say_staged(std::uint64_t end) noexcept { say(own_progress().staged, end); }
  void say_reduced(std::uint64_t end) noexcept { say(own_progress().reduced, end); }
  void say_consumed(std::uint64_t end) noexcept { say(own_progress().consumed, end); }

  // Nothing comes from this rank any more. Who waits for it fails with `why`, once what it had written has
  // been seen.
  void rank_gone(int rank, errc why, const std::string& text) noexcept;

  // Waiting for other ranks. `ready` answers -1 when there is something to do, else the rank that is waited
  // for; it is asked again and again. Null: only until the loop has had its turn.
  class wait : public core::completion {
   public:
    using test = int (*)(void* context) noexcept;
    wait(collective_segment& b, test ready, void* context) noexcept
        : segment_(b), ready_(ready), context_(context) {}
    explicit wait(collective_segment& b) noexcept : wait(b, nullptr, nullptr) {}
    ~wait();

    struct awaiter {
      wait* self;
      bool await_ready() const noexcept { return self->ready_ != nullptr && self->segment_.poll(*self); }
      void await_suspend(std::coroutine_handle<> h) const noexcept;
      void await_resume() const {
        if (self->failure() != errc::success) throw error(self->failure(), self->take_text());
      }
    };
    awaiter operator co_await() & noexcept { return awaiter{this}; }

   private:
    friend class collective_segment;
    collective_segment& segment_;
    test ready_;
    void* context_;
    std::coroutine_handle<> waiting_;
  };
  // Looks for a short while, without the loop. True: over. False: await it; the loop may be due.
  bool poll(wait& w) noexcept;
  // Nothing is in progress or waits for its turn.
  bool free() const noexcept { return state_ == condition::usable && turns_.empty(); }
  // The rank (of the communicator) that operation `sequence` waits for, or -1.
  int waits_for(std::uint32_t sequence) const noexcept {
    return waiting_ != nullptr && sequence == sequence_ ? missing_ : -1;
  }

  // The others have read all that this rank has written. A segment must not be destroyed before, unless by
  // keep_part() its memory outlives it: who is still reading must not find something else there.
  bool can_go() const noexcept;
  void keep_part() noexcept { own_ = nullptr; }

  bool poll() noexcept override;
  bool arm() noexcept override { return poll(); }

 private:
  struct slot {
    std::atomic<std::uint64_t> stamp;  // number of the operation on the segment; last to be written
    std::uint32_t sequence;
    std::uint16_t history;
    std::atomic<std::uint8_t> vote;
    p2p::fingerprint print;
    alignas(16) std::byte payload[slot_payload];
  };
  static_assert(sizeof(slot) == 64);
  // Words and slots keep 128 bytes apart: adjacent lines are fetched together by many processors.
  static constexpr std::size_t apart = 128;
  static constexpr std::size_t ring_offset = 8192;
  static_assert((1 + slots) * apart <= ring_offset);

  struct progress {  // of another rank, at least
    std::uint64_t consumed = 0;
    std::uint64_t finished = 0;
  };

  std::uint16_t history() const noexcept { return static_cast<std::uint16_t>(history_ >> 48); }
  slot& slot_of(std::byte* part) const noexcept {
    return *reinterpret_cast<slot*>(part + (1 + operation_ % slots) * apart);
  }
  const slot& slot_of(const std::byte* part) const noexcept {
    return *reinterpret_cast<const slot*>(part + (1 + operation_ % slots) * apart);
  }
  progress_words& own_progress() noexcept { return *reinterpret_cast<progress_words*>(own_); }
  void say(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
    word.store(value, std::memory_order_release);
    notify();
  }
  void notify() noexcept;

  core::loop& loop_;
  transport::neighbours& near_;
  const std::vector<int> members_;
  const int rank_;
  const int size_;
  const std::size_t ring_bytes_;
  condition state_ = condition::unmade;
  bool watched_ = false;
  bool owes_notice_ = false;  // finish() has changed words since the last notify()
  std::byte* own_ = nullptr;
  std::byte* own_ring_ = nullptr;
  std::array<const std::byte*, most_ranks> views_{};
  std::array<std::uint64_t, most_ranks> marks_{};
  std::array<const std::atomic<std::uint32_t>*, most_ranks> sleeps_{};
  std::array<progress, most_ranks> seen_{};
  base::intrusive_list<turn, segment_turn_tag> turns_;  // the front has the segment
  std::uint64_t operation_ = 0;                         // from 1; of the turn that has begun last
  std::uint64_t position_ = 0;
  std::uint64_t begun_at_ = 0;  // position before the operation
  std::uint32_t sequence_ = 0;
  p2p::fingerprint print_{};
  std::uint64_t history_ = 0;  // hash of the fingerprints of all earlier operations
  struct departure {
    errc why = errc::success;  // it has not gone
    std::string text;
  };
  std::array<departure, most_ranks> departed_;
  wait* waiting_ = nullptr;
  int missing_ = -1;
  unsigned at_once_ = 0;  // waits that may still end without the loop
};

}  // namespace tutti::comm
