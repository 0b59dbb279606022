// SPDX-License-Identifier: Apache-2.0
// Common steps of algorithms on a collective segment: waiting for room, waiting for other ranks, and
// publishing data that fit in one piece.
//
//   publication mine(c, bytes);                // the same on all ranks
//   room_to_write room(c, mine.end());         await it; then write mine.data()
//   c.segment().arrive();
//   arrivals others(c);                        await it; then read mine.of(rank)
#pragma once

#include "coll/collective.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <tutti/error.hpp>
#include <tutti/task.hpp>

namespace tutti::coll {

// Makes the segment by messages, in the turn of the first operation on it. Ends without a segment if a rank
// lacks what it needs.
task<> set_up_segment(collective c);

// Throws errc::mismatch, naming both calls: `rank` has another operation on the segment.
[[noreturn]] void refuse_operation(const collective& c, int rank);

// Awaited like its base class. Not movable: a test is bound to the object's address.
class room_to_write : public comm::collective_segment::wait {
 public:
  room_to_write(const collective& c, std::uint64_t end) noexcept
      : wait(c.segment(), &test, this), segment_(c.segment()), end_(end) {}

 private:
  static int test(void* self) noexcept {
    auto& r = *static_cast<room_to_write*>(self);
    return r.segment_.room_for(r.end_);
  }
  comm::collective_segment& segment_;
  std::uint64_t end_;
};

// Waits until every other rank, or `only` one, has arrived at this operation. check() then throws if one was
// at another operation.
class arrivals : public comm::collective_segment::wait {
 public:
  explicit arrivals(const collective& c) noexcept : wait(c.segment(), &test, this), c_(c), last_(c.size()) {}
  // `only` -1: all.
  arrivals(const collective& c, int only) noexcept
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
  int next_ = 0;
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

// Takes steps as they become possible, until r->done(). `possible` is a collective_segment::wait::test on *r.
template <class Rounds>
task<> work_off(collective c, Rounds* r) {
  own_turn turn(c);
  while (!r->done()) {
    r->check();
    if (r->step()) {
      if (!turn.is_over()) continue;
      comm::collective_segment::wait pause(c.segment());
      co_await pause;
    } else {
      comm::collective_segment::wait others(c.segment(), &Rounds::possible, r);
      co_await others;
    }
    turn.begin();
  }
}

// An operation of at least so many bytes suspends once before copying the first block, so that starting it is
// cheap.
inline constexpr std::size_t least_to_begin_later = 256 * 1024;

}  // namespace tutti::coll
