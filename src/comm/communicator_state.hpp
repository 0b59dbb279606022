// SPDX-License-Identifier: Apache-2.0
// What all handles of one communicator share on this rank: its members, its place in the order of
// collectives, its pending operations and whether it has failed.
#pragma once

#include "base/intrusive_list.hpp"
#include "comm/collective_segment.hpp"
#include "comm/scratch.hpp"
#include "comm/topology.hpp"
#include "core/loop.hpp"
#include "flight/handle.hpp"
#include "p2p/endpoint.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tutti/detail/call_part.hpp>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::flight {
class recorder;
}

namespace tutti::comm {

// Of a rank whose loop does not answer.
inline constexpr const char* why_silent =
    "its loop thread computes or is blocked (tutti::compute takes such work off it), or the process is "
    "stopped "
    "or cut off";

class world;

// Above them: which of the communicators beside it that tutti::gpu has (detail::beside).
inline constexpr int communicator_id_bits = 28;

struct running_tag;

// A collective in progress, as far as its communicator needs to know it.
class running_collective : public base::list_hook<running_tag> {
 public:
  // Ends it at once: on return it references no buffer; its completion, with this failure, is queued.
  virtual void end(errc why, const std::string& text) noexcept = 0;
  virtual std::string describe() const = 0;  // "all_reduce #41"
  virtual std::uint32_t sequence() const noexcept = 0;
  // As which it waits under the communicator's timeout.
  virtual const core::completion& waiting() const noexcept = 0;

  core::time_point since{};  // set by communicator_state::add
  flight::handle record{};   // where it is on record; it may be none
  bool noticed = false;

 protected:
  ~running_collective() = default;
};

class communicator_state final : public p2p::context_owner {
 public:
  // `members`: ranks of the world by rank of this communicator; this rank must be one of them. `parent`: the
  // id of the communicator that it was made from; its own: it is the world's.
  communicator_state(world& w, std::uint32_t id, std::uint32_t parent, std::string name,
                     std::vector<int> members);
  ~communicator_state();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(members_.size()); }
  const std::string& name() const noexcept { return name_; }
  std::uint32_t id() const noexcept { return id_; }
  std::uint32_t parent() const noexcept { return parent_; }
  const std::vector<int>& members() const noexcept { return members_; }
  int world_rank(int rank) const noexcept { return members_[static_cast<std::size_t>(rank)]; }
  int rank_of(int world_rank) const noexcept;  // -1: not a member
  std::string describe(int rank) const;        // "rank 2 (host b, pid 77)"

  core::loop& loop() const noexcept { return loop_; }
  core::engine& engine() const noexcept { return loop_.engine(); }
  p2p::endpoint& endpoint() const noexcept { return *endpoint_; }
  flight::recorder& recorder() const noexcept { return *recorder_; }  // while it is not detached
  // Null once the runtime has ended while handles were left.
  bool detached() const noexcept { return world_ == nullptr; }
  std::uint32_t message_context() const noexcept { return 2 * id_; }
  std::uint32_t collective_context() const noexcept { return 2 * id_ + 1; }
  // Of a communicator of the same ranks for the library's own messages (detail::beside), and the context of one.
  std::uint32_t id_beside(int which) const noexcept {
    return id_ | static_cast<std::uint32_t>(which + 1) << communicator_id_bits;
  }
  std::uint32_t announcements_context() const noexcept { return 2 * id_beside(detail::beside_announcements); }
  std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  // Only while no operation waits under it.
  void set_timeout(std::chrono::milliseconds timeout) noexcept {
    timer_.cancel();  // it may be armed for a later time
    timeout_ = timeout;
  }
  scratch_pool& scratch() noexcept { return scratch_; }
  std::shared_ptr<detail::device_side>& devices() noexcept { return devices_; }
  const topology& places() const noexcept { return where_; }
  world& of_world() const noexcept { return *world_; }

  // Its members share memory: collectives may use the segment. The same on all of them.
  bool shares_memory() const noexcept { return segment_ != nullptr; }
  comm::collective_segment& shared_segment() noexcept { return *segment_; }
  // A collective with the segment has been started, or so many without that it pays to make it. The same on
  // all ranks.
  bool segment_pays() const noexcept { return segment_wanted_ || next_sequence_ > calls_before_segment; }
  void want_segment() noexcept { segment_wanted_ = true; }
  // Others may still be reading this rank's part.
  bool segment_is_read() const noexcept { return segment_ != nullptr && !failed() && !segment_->can_go(); }

  // The next place in the order of collectives, for one with this fingerprint. When a frame of another kind
  // of collective has already come for that place, the communicator fails with errc::mismatch.
  std::uint32_t next_sequence(const p2p::fingerprint& mine) noexcept;
  // `c` is in progress until it unlinks itself. One that lasts makes this rank tell others what it waits in.
  void add(running_collective& c) noexcept;

  // Something waits for a message from any member.
  void expect_anyone() noexcept { waits_for_anyone_ = true; }
  // `a` now waits under the communicator's timeout, after which its on_expire is called, or, when it
  // `has_deadline`, for as long as it takes. When the communicator fails, on_expire is called too. It leaves
  // by unlinking. `cycles`: a reading of base::cycles() of just now, or 0.
  void watch(core::completion& a, bool has_deadline, std::uint64_t cycles) noexcept;

  // Nothing new begins, but for collectives that the failure does not reach: those that whoever failed the
  // communicator had completed.
  bool failed() const noexcept { return failure_ != errc::success; }
  // The failure reaches collective `sequence`, or all to come from `sequence` on.
  bool ends(std::uint32_t sequence) const noexcept {
    return failed() && (first_failed_ == 0 || !precedes(sequence, first_failed_));
  }
  bool ends_next() const noexcept { return ends(next_sequence_); }
  std::uint32_t first_failed() const noexcept { return first_failed_; }
  // The first collective that is not complete here; `also` is not, although it does not run.
  std::uint32_t first_open(std::uint32_t also = 0) const noexcept;
  errc failure() const noexcept { return failure_; }
  const std::string& failure_text() const noexcept { return failure_text_; }
  // What a call on a failed communicator gets: the failure itself when no operation here has ended with it
  // yet (it came from a peer while nothing was pending), later errc::communicator_failed.
  errc report_failure() noexcept {
    if (failure_ == errc::shut_down) return failure_;
    return std::exchange(reported_, true) ? errc::communicator_failed : failure_;
  }
  // Ends messages and collectives, those before `first` excepted, with this reason, and, with `tell`, on the
  // other members; with extent::children, also on communicators that were made from this one. `first`: that
  // of failure_notice; without, first_open(). What fails again fails only from an earlier collective on.
  void fail(errc why, const std::string& text, bool tell, p2p::extent reach = p2p::extent::one,
            std::optional<std::uint32_t> first = std::nullopt) noexcept;
  // Collective `sequence`, in progress here, has taken too long. Asks all ranks where they are with it and
  // fails the communicator, `why` and `text` with what they said, when all have answered or after a tenth of
  // a second; not when the collective ends meanwhile.
  void explain_and_fail(std::uint32_t sequence, errc why, std::string text) noexcept;
  // Why no collective can succeed any more (a member has died), or empty.
  const std::string& dead_member() const noexcept { return dead_member_; }

  // What is pending here and for whom it waits, for people; empty: nothing.
  std::string pending() const;

  // The ranks whose link has failed here, and those that other members have told of or agreed on; ascending.
  std::vector<int> failed_ranks() const;
  // The same as ranks of the world.
  std::vector<int> failed_members() const noexcept;
  // Ignores ranks of the world that are no members.
  void add_failed(std::span<const int> world_ranks) noexcept;
  // Tells one shrink() of this communicator from the next, the same on all members.
  std::uint32_t next_round() noexcept { return ++rounds_; }
  // Those that are waited for and do not progress, ascending.
  std::vector<int> suspected_ranks() const;
  // Raises `by_peer`, by rank of the world, for those that collectives with the segment wait for.
  void mark_waited_for(std::vector<p2p::waits>& by_peer) const noexcept;

  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release_reference() noexcept;
  // The world ends before the last handle.
  void detach() noexcept;
  // Greater than that of every communicator of its world that was made before.
  std::uint64_t serial() const noexcept { return serial_; }

  // p2p::context_owner
  bool admit(int peer, std::uint32_t sequence, const p2p::fingerprint& theirs) noexcept override;
  std::string mismatch_text(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                            const p2p::fingerprint& theirs) const override;
  void failed_remotely(int peer, const p2p::failure_notice& told) noexcept override;
  void peer_closed(int peer, errc why, const std::string& text) noexcept override;
  void closed_remotely(int peer) noexcept override;
  std::string closed_text(int peer) const override;
  p2p::collective_progress where(std::uint32_t sequence) const noexcept override;
  void told(int peer, std::uint32_t sequence, const p2p::collective_progress& there) noexcept override;
  bool has_member(int world_rank) const noexcept override { return rank_of(world_rank) >= 0; }

 private:
  struct place {
    std::uint32_t sequence = 0;
    bool started = false;  // by us; otherwise seen first from `peer`
    int peer = -1;
    p2p::fingerprint print{};
  };
  static constexpr std::size_t remembered = 64;
  static constexpr std::uint32_t calls_before_segment = 8;

  struct inquiry {
    std::uint32_t sequence = 0;
    errc why = errc::success;
    std::string text;
    std::vector<std::optional<p2p::collective_progress>> answers;  // by rank
    std::size_t missing = 0;
  };
  bool is_running(std::uint32_t sequence) const noexcept;
  void end_inquiry() noexcept;
  std::string findings(const inquiry& all) const;
  void mismatch(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                const p2p::fingerprint& theirs) noexcept;
  // The order of collectives; numbers begin again after 2^31.
  static bool precedes(std::uint32_t a, std::uint32_t b) noexcept {
    return a != b && ((b - a) & 0x7fffffffU) < 0x40000000U;
  }
  bool fails_earlier(std::uint32_t first) const noexcept {
    return !failed() || (first_failed_ != 0 && (first == 0 || precedes(first, first_failed_)));
  }
  bool end_pending(errc why, const std::string& text) noexcept;  // whether there was anything
  void fail_children(errc why, const std::string& text, bool tell) noexcept;
  bool has_failed(int rank) const noexcept {
    return told_failed_[static_cast<std::size_t>(rank)] || endpoint_->peer_failed(world_rank(rank));
  }
  void last_reference_gone() noexcept;
  // A handler that closes the communicator from the loop, after the last handle has gone on another thread or
  // by an exception. A handler that is never called does the same when it is destroyed: the runtime has ended
  // by then.
  class goodbye;
  static void expire(void* self) noexcept;
  static void give_notices(void* self) noexcept;
  static void check_waiting(void* self) noexcept;
  void ask_whether_closed(int member) noexcept;
  void record_waits() noexcept;

  world* world_;
  core::loop& loop_;
  p2p::endpoint* endpoint_;
  flight::recorder* recorder_;
  const std::uint32_t id_;
  const std::uint32_t parent_;
  const std::string name_;
  std::size_t record_place_;  // of this communicator
  const std::vector<int> members_;
  std::vector<int> ranks_;  // by world rank; -1: not a member
  int rank_ = -1;
  topology where_;
  std::chrono::milliseconds timeout_;
  std::atomic<int> references_{0};
  // Held while the last one goes on another thread, and while the runtime ends: world_ and loop_ stay.
  std::mutex ending_;
  const std::uint64_t serial_;
  std::uint32_t next_sequence_ = 1;
  std::array<place, remembered> places_{};
  errc failure_ = errc::success;
  std::string failure_text_;
  std::uint32_t first_failed_ = 0;
  bool reported_ = false;  // an operation of this rank has ended with the failure
  std::string dead_member_;
  std::vector<bool> told_failed_;  // by rank: other members have told of its failure, or agreed on it
  std::uint32_t rounds_ = 0;
  base::intrusive_list<running_collective, running_tag> running_;
  base::intrusive_list<core::completion, core::waiting_tag> waiting_;  // in the order of their starts
  base::intrusive_list<core::completion, core::waiting_tag>
      patient_;  // those that end by a deadline of their own
  core::timer timer_;
  core::timer notice_timer_;
  core::timer check_timer_;
  bool waits_for_anyone_ = false;
  // By rank: this rank has waited for it and has asked it, so it tells when it closes this communicator.
  std::vector<bool> asked_;
  core::timer inquiry_timer_;
  std::unique_ptr<inquiry> inquiry_;
  std::vector<inquiry> later_;  // to be made when that one is over and has not failed the communicator
  scratch_pool scratch_;
  std::unique_ptr<comm::collective_segment> segment_;  // null: not all members share memory
  bool segment_wanted_ = false;
  std::shared_ptr<detail::device_side> devices_;
};

// The fingerprint of a collective: what all ranks must agree on. `describe` gives it back as text.
inline constexpr std::uint8_t being_prepared = 0x80, on_device = 0x40;
struct collective_description {
  std::uint8_t kind = 0;       // detail::operation_kind, with these two flags
  std::uint8_t type = 0;       // element_type
  std::uint8_t reduction = 0;  // reduce_kind
  std::uint8_t algorithm = 0;
  std::int32_t root = -1;
  std::uint64_t count : 48 = 0;     // elements
  std::uint64_t callable : 16 = 0;  // detail::reduction::callable
};
p2p::fingerprint fingerprint_of(const collective_description& d) noexcept;
std::string describe(const p2p::fingerprint& print);

}  // namespace tutti::comm
