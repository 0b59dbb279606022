// SPDX-License-Identifier: Apache-2.0
// communicator_state: what all handles of one communicator share on this rank. It has the members, the place
// in the order of collectives, the pending operations and the failure.
#pragma once

#include "base/intrusive_list.hpp"
#include "comm/collective_segment.hpp"
#include "comm/scratch.hpp"
#include "comm/topology.hpp"
#include "core/loop.hpp"
#include "core/running_task.hpp"
#include "flight/layout.hpp"
#include "p2p/endpoint.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tutti/detail/call_part.hpp>
#include <tutti/error.hpp>
#include <tutti/task.hpp>
#include <utility>
#include <vector>

namespace tutti::flight {
class recorder;
}

namespace tutti::comm {

// The cure in errors about a rank whose loop does not answer.
inline constexpr const char* why_silent =
    "its loop thread computes or is blocked (tutti::compute takes such work off it), or the process is "
    "stopped "
    "or cut off";

// "rank 1 (…), rank 4 (…) and 12 more": at most eight names.
std::string list_of(const std::vector<std::string>& names);

class world;

// Bits above these select one of the communicators beside it that tutti::gpu has (detail::beside).
inline constexpr int communicator_id_bits = 28;

struct running_tag;

// A collective in progress, as its communicator sees it.
class running_collective : public core::completion, public base::list_hook<running_tag> {
 public:
  explicit running_collective(std::uint32_t s) noexcept : sequence(s) {}
  // Ends it at once. On return it references no buffer, and its completion with this failure is queued.
  virtual void end(errc why, const std::string& text) noexcept = 0;
  virtual std::string describe() const = 0;  // "all_reduce #41"

  const std::uint32_t sequence;  // its place in the order of collectives
  core::time_point since{};      // set by communicator_state::add
  flight::handle record{};       // its place in the recording, if it has one
  bool noticed = false;

 protected:
  ~running_collective() = default;
};

class communicator_state final : public p2p::context_owner {
 public:
  // `members` are ranks of the world by rank of this communicator, and include this rank. `parent` is the id
  // of the communicator that it was made from, by its collective `made_by` if that is not 0; for the world's
  // communicator its own id.
  communicator_state(world& w, std::uint32_t id, std::uint32_t parent, std::string name,
                     std::vector<int> members, std::uint32_t made_by);
  ~communicator_state();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(members_.size()); }
  const std::string& name() const noexcept { return name_; }
  void rename(std::string name);
  std::uint32_t id() const noexcept { return id_; }
  std::uint32_t parent() const noexcept { return parent_; }
  const std::vector<int>& members() const noexcept { return members_; }
  int world_rank(int rank) const noexcept { return members_[static_cast<std::size_t>(rank)]; }
  int rank_of(int world_rank) const noexcept;  // -1: not a member
  // "rank 2 (host b, pid 77)"; if the world numbers it differently,
  // "rank 2 (rank 3 of the world, host b, pid 77)".
  std::string describe(int rank) const;
  // For texts that number ranks as the world does: "; rank 3 of the world is rank 2 of world/group4". Empty
  // if the numbers are the same, or it is no member.
  std::string number_here(int world_rank) const;

  core::loop& loop() const noexcept { return loop_; }  // requires that it is not detached
  const boost::asio::io_context::executor_type& executor() const noexcept { return executor_; }
  // Throws errc::wrong_thread on another thread than the loop's. `call` is what the program called. Requires that
  // it is not detached.
  void require_loop_thread(const char* call) const;
  core::progress_engine& engine() const noexcept { return loop_.engine(); }
  p2p::endpoint& endpoint() const noexcept { return *endpoint_; }
  flight::recorder& recorder() const noexcept { return *recorder_; }  // requires that it is not detached
  // Whether the runtime has ended while handles were left; the world is then null.
  bool detached() const noexcept { return world_ == nullptr; }
  std::uint32_t message_context() const noexcept { return 2 * id_; }
  std::uint32_t collective_context() const noexcept { return 2 * id_ + 1; }
  // Of a communicator of the same ranks for the library's own messages (detail::beside), and the context of one.
  std::uint32_t id_beside(int which) const noexcept {
    return id_ | static_cast<std::uint32_t>(which + 1) << communicator_id_bits;
  }
  std::uint32_t rts_context() const noexcept { return 2 * id_beside(detail::beside_rts); }
  std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  std::string timeout_text() const;  // "timed out after 30 s"
  // Call it only while no operation waits under it.
  void set_timeout(std::chrono::milliseconds timeout) noexcept {
    timer_.cancel();  // it may be armed for a later time
    timeout_ = timeout;
  }
  scratch_pool& scratch() noexcept { return scratch_; }
  std::shared_ptr<detail::device_side>& devices() noexcept { return devices_; }
  const topology& places() const noexcept { return where_; }
  world& of_world() const noexcept { return *world_; }

  // Whether all members share memory, so that collectives may use the segment. The same on all of them.
  bool shares_memory() const noexcept { return segment_ != nullptr; }
  comm::collective_segment& shared_segment() noexcept { return *segment_; }
  // Whether a collective with the segment has been started, or so many without it that making it pays. The
  // same on all ranks.
  bool segment_pays() const noexcept { return segment_wanted_ || next_sequence_ > calls_before_segment; }
  void want_segment() noexcept { segment_wanted_ = true; }
  // Whether others may still be reading this rank's part.
  bool segment_is_read() const noexcept { return segment_ != nullptr && !failed() && !segment_->can_go(); }

  // Returns the next place in the order of collectives for one with this fingerprint. If a frame of a
  // different collective has already arrived for that place, the communicator fails with errc::mismatch.
  std::uint32_t next_sequence(const p2p::fingerprint& mine) noexcept;
  // Registers `c` as in progress until it unlinks itself. If it lasts long, this rank tells others what it
  // waits in.
  void add(running_collective& c) noexcept;

  // Records that an operation waits for a message from any member.
  void expect_anyone() noexcept { waits_for_anyone_ = true; }
  // Makes `a` wait under the communicator's timeout, after which its on_expire is called. With `has_deadline`
  // there is no such limit. on_expire is also called when the communicator fails. `a` leaves by unlinking.
  // `cycles` is a recent reading of base::cycles(), or 0.
  void watch(core::completion& a, bool has_deadline, std::uint64_t cycles) noexcept {
    a.started =
        engine().recent(cycles) + core::progress_engine::age_of_recent;  // a timeout never comes early
    (has_deadline ? patient_ : waiting_).push_back(a);
    if (!check_timer_.armed() || (!has_deadline && !timer_.armed())) [[unlikely]]
      arm_timers(a.started);
  }

  // Whether it has failed. Then only collectives that the failure does not reach begin: those that the rank
  // that failed the communicator had completed.
  bool failed() const noexcept { return failure_.why != errc::success; }
  // Whether the failure reaches collective `sequence`, or all collectives from there on.
  bool ends(std::uint32_t sequence) const noexcept {
    return failed() && (failure_.first == 0 || !precedes(sequence, failure_.first));
  }
  bool ends_next() const noexcept { return ends(next_sequence_); }
  // The first collective that is not complete on this rank. `also` counts as not complete although it does
  // not run.
  std::uint32_t first_open(std::uint32_t also = 0) const noexcept;
  errc failure() const noexcept { return failure_.why; }
  const std::string& failure_text() const noexcept { return failure_.text; }
  p2p::subject failure_names() const noexcept { return failure_.names; }
  // The error of a collective that ends with such a failure.
  std::string text_for(const running_collective& c, const std::string& text, p2p::subject names) const;
  // As other members are told of it, with this reach.
  p2p::failure_message failure_to_tell(p2p::extent reach) const {
    return {failure_.why, failure_.text, reach, failed_members(), failure_.first, failure_.names};
  }
  // The error for a call on a failed communicator. It is the failure itself as long as no operation of this
  // rank has ended with it: a peer may report it while nothing is pending. Later it is
  // errc::communicator_failed.
  errc report_failure() noexcept {
    if (failure() == errc::shut_down) return failure();
    return std::exchange(reported_, true) ? errc::communicator_failed : failure();
  }
  // Fails the communicator: ends messages, and collectives except those before `first`, with this reason.
  // `names` is what the text names: a pending collective that the text does not name puts its own name before
  // it. With `tell`, also on the other members; without, another rank has told this one, and collectives may yet
  // complete from what has come of them. With extent::children, also the communicators made from this one.
  // `first` is that of failure_message; without it, first_open(). A second failure only extends it to earlier
  // collectives.
  void fail(errc why, const std::string& text, p2p::subject names, bool tell,
            p2p::extent reach = p2p::extent::one, std::optional<std::uint32_t> first = std::nullopt) noexcept;
  // Collective `sequence`, in progress on this rank, has taken too long. Asks all ranks how far they are.
  // When all have answered, or after a tenth of a second, fails the communicator with `why` and `text` plus
  // the answers. Does nothing if the collective ends meanwhile.
  void explain_and_fail(std::uint32_t sequence, errc why, std::string text) noexcept;
  // Waits until all ranks have called the collective that was started last, unless it ends on each only then. If one
  // called a different collective, the communicator fails with errc::mismatch on all ranks. Ends without a result at
  // the deadline, if a rank has left, or while collectives are in progress. This object must stay open meanwhile.
  task<> compare_last(core::time_point deadline);
  // Called when an operation of this rank has taken longer than its timeout. Writes who waits for whom to standard
  // error, once for all ranks to which that happens within some seconds.
  void report_hang() const noexcept;
  // Says why no collective can succeed any more (a member has died); empty otherwise.
  const std::string& dead_member() const noexcept { return dead_member_.text; }

  // The ranks whose link has failed on this rank, and those that other members reported or agreed on;
  // ascending.
  std::vector<int> failed_ranks() const;
  // The same as ranks of the world; empty also if memory has run out.
  std::vector<int> failed_members() const noexcept;
  // Ignores ranks of the world that are not members.
  void add_failed(std::span<const int> world_ranks) noexcept;
  // Numbers the calls of shrink() on this communicator, the same on all members.
  std::uint32_t next_round() noexcept { return ++rounds_; }
  // Whether failed_ranks() has this rank of the world.
  bool counts_as_failed(int world_rank) const noexcept {
    const int rank = rank_of(world_rank);
    return rank >= 0 && has_failed(rank);
  }
  // The ranks that are waited for and make no progress, ascending.
  std::vector<int> suspected_ranks() const;
  // Raises `by_peer`, by rank of the world, for the ranks that collectives with the segment wait for.
  void mark_waited_for(std::vector<p2p::waits>& by_peer) const noexcept;

  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release_reference() noexcept;
  // Called when the world ends before the last handle.
  void detach() noexcept;

  // p2p::context_owner
  bool admit(int peer, std::uint32_t sequence, const p2p::fingerprint& theirs) noexcept override;
  std::string mismatch_text(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                            const p2p::fingerprint& theirs) const override;
  void failed_remotely(int peer, const p2p::failure_message& told) noexcept override;
  void peer_closed(int peer, errc why, const std::string& text) noexcept override;
  void closed_remotely(int peer) noexcept override;
  std::string closed_text(int peer) const override;
  p2p::progress_message where(std::uint32_t sequence) const noexcept override;
  void told(int peer, const p2p::progress_message& there) noexcept override;
  bool has_member(int world_rank) const noexcept override { return rank_of(world_rank) >= 0; }

 private:
  struct place {
    std::uint32_t sequence = 0;
    bool started = false;  // started by this rank; otherwise first seen from `peer`
    int peer = -1;
    p2p::fingerprint print{};
  };
  // Ends the collectives that the failure reaches when the loop has polled everything once more: what came before
  // another rank's word of the failure completes them first.
  class last_rounds final : public core::source {
   public:
    explicit last_rounds(communicator_state& c) noexcept : of_(c) {}
    ~last_rounds() override { stop(); }
    void begin(errc why, const std::string& text, p2p::subject names) noexcept;
    void stop() noexcept;
    bool poll() noexcept override;
    bool arm() noexcept override { return true; }

   private:
    communicator_state& of_;
    int left_ = 0;
    p2p::failure_message failure_;
  };
  static constexpr std::size_t remembered = 64;
  static constexpr std::uint32_t calls_before_segment = 8;

  struct inquiry {
    std::uint32_t sequence = 0;
    errc why = errc::success;
    std::string text;
    std::vector<std::optional<p2p::progress_message>> answers = {};  // by rank
  };
  bool is_running(std::uint32_t sequence) const noexcept;
  task<> inquire();
  std::string findings(const inquiry& all) const;
  void mismatch(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                const p2p::fingerprint& theirs) noexcept;
  // Compares places in the order of collectives; numbers start again after 2^31.
  static bool precedes(std::uint32_t a, std::uint32_t b) noexcept {
    return a != b && ((b - a) & 0x7fffffffU) < 0x40000000U;
  }
  bool fails_earlier(std::uint32_t first) const noexcept {
    return !failed() || (failure_.first != 0 && (first == 0 || precedes(first, failure_.first)));
  }
  bool end_messages() noexcept;  // returns whether any was pending
  void end_collectives(errc why, const std::string& text, p2p::subject names) noexcept;
  void fail_unmade(const p2p::failure_message& told) noexcept;
  void fail_children(errc why, const std::string& text, bool tell) noexcept;
  bool has_failed(int rank) const noexcept {
    return told_failed_[static_cast<std::size_t>(rank)] || endpoint_->peers().failed(world_rank(rank));
  }
  void last_reference_gone() noexcept;
  void arm_timers(core::time_point now) noexcept;
  static void expire(void* self) noexcept;
  static void end_doubts(void* self) noexcept;
  static void give_notices(void* self) noexcept;
  static void check_waiting(void* self) noexcept;
  void ask_whether_closed(int member) noexcept;
  // Whether this rank is one that tells that rank of a failure.
  bool tells(int rank) const noexcept;

  world* world_;
  core::loop& loop_;
  const boost::asio::io_context::executor_type executor_;  // of the loop, which may end first
  p2p::endpoint* endpoint_;
  flight::recorder* recorder_;
  const std::uint32_t id_;
  const std::uint32_t parent_;
  const std::uint32_t made_by_;
  std::string name_;
  std::size_t record_place_;  // index of this communicator in the recording
  const std::vector<int> members_;
  std::vector<int> ranks_;  // by world rank; -1: not a member
  int rank_ = -1;
  topology where_;
  std::chrono::milliseconds timeout_;
  std::atomic<int> references_{0};
  // Held while the last handle goes on another thread, and while the runtime ends, so that world_ and loop_
  // stay valid.
  std::mutex ending_;
  std::uint32_t next_sequence_ = 1;
  std::array<place, remembered> places_{};
  p2p::failure_message failure_;  // errc::success: it has not failed
  bool reported_ = false;         // an operation of this rank has ended with the failure
  p2p::departure dead_member_;
  std::vector<bool> told_failed_;  // by rank: other members have reported its failure, or agreed on it
  std::uint32_t rounds_ = 0;
  base::intrusive_list<running_collective, running_tag> running_;
  base::intrusive_list<core::completion, core::waiting_tag> waiting_;  // in the order of their starts
  base::intrusive_list<core::completion, core::waiting_tag>
      patient_;  // those that end by a deadline of their own
  core::timer timer_;
  core::timer notice_timer_;
  core::timer check_timer_;
  core::timer doubts_timer_;  // armed when a member dies during a collective
  last_rounds last_rounds_{*this};
  bool waits_for_anyone_ = false;
  // By rank: this rank has waited for it and asked it, so that it tells when it closes this communicator.
  std::vector<bool> asked_;
  std::list<inquiry> inquiries_;  // in order; the other ranks have been asked about the first only
  inquiry* comparing_ = nullptr;  // of compare_last()
  scratch_pool scratch_;
  std::unique_ptr<comm::collective_segment> segment_;  // null: not all members share memory
  bool segment_wanted_ = false;
  std::shared_ptr<detail::device_side> devices_;
  core::background_tasks inquiring_;  // last: its task uses the others
};

// The fingerprint of a collective: all that ranks must agree on. `describe` converts it back to text.
inline constexpr std::uint8_t being_prepared = 0x80, on_device = 0x40;
struct collective_description {
  std::uint8_t kind = 0;       // detail::operation_kind, with these two flags
  std::uint8_t type = 0;       // element_type
  std::uint8_t reduction = 0;  // reduce_kind
  std::uint8_t algorithm = 0;
  std::int32_t root = -1;
  std::uint64_t count : 48 = 0;  // elements
  // detail::reduction::callable; for opaque elements combined by exclusive or with their size, or from
  // least_hashed_bytes on with that bit and a hash of their size.
  std::uint64_t callable : 16 = 0;

  static constexpr std::uint16_t least_hashed_bytes = 0x8000;
};
p2p::fingerprint fingerprint_of(const collective_description& d) noexcept;
std::string describe(const p2p::fingerprint& print);

}  // namespace tutti::comm
