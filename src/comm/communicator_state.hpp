// SPDX-License-Identifier: Apache-2.0
// communicator_state: what all handles of one communicator share on this rank. It owns the parts, passes to them what
// the endpoint says, and ends with the last handle. ARCHITECTURE.md has a table of the parts.
#pragma once

#include "comm/collective_order.hpp"
#include "comm/communicator_home.hpp"
#include "comm/failure_spread.hpp"
#include "comm/group.hpp"
#include "comm/host_segments.hpp"
#include "comm/pending_operations.hpp"
#include "comm/progress_exchange.hpp"
#include "comm/scratch.hpp"
#include "core/loop.hpp"
#include "flight/recorder.hpp"
#include "p2p/endpoint.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tutti/error.hpp>
#include <tutti/extend/side_channel.hpp>
#include <vector>

namespace tutti::comm {

// Bits above these select one of its side channels (extend/side_channel.hpp).
inline constexpr int communicator_id_bits = 28;

struct communicator_numbers {
  std::uint32_t id = 0;
  // The communicator that it was made from, and by which of its collectives, if by one; for the world's its own id.
  std::uint32_t parent = 0;
  std::uint32_t made_by = 0;

  bool is_child() const noexcept { return parent != id; }
  // Contexts of its messages and of its collectives.
  std::uint32_t messages() const noexcept { return 2 * id; }
  std::uint32_t collectives() const noexcept { return 2 * id + 1; }
  // Of a side channel, and the context of the one for rts headers.
  std::uint32_t id_beside(int which) const noexcept {
    return id | static_cast<std::uint32_t>(which + 1) << communicator_id_bits;
  }
  std::uint32_t rts() const noexcept { return 2 * id_beside(extend::rts_channel); }
};

class communicator_state final : p2p::context_owner, failure_spread::owner {
 public:
  // `members` are ranks of the world by rank of this communicator, and include this rank.
  communicator_state(communicator_home& home, communicator_numbers numbers, std::string name,
                     std::vector<int> members);
  ~communicator_state();

  const comm::group& group() const noexcept { return group_; }
  int rank() const noexcept { return group_.rank(); }
  int size() const noexcept { return group_.size(); }
  void rename(std::string name);
  const communicator_numbers& numbers() const noexcept { return numbers_; }

  // Whether the runtime has ended while handles were left. Then only group(), numbers(), executor() and failure() may
  // be asked.
  bool detached() const noexcept { return home_ == nullptr; }
  communicator_home& home() const noexcept { return *home_; }
  // Calls f(home()) unless the runtime has ended. On any thread: the runtime does not end meanwhile.
  template <class F>
  void with_home(const F& f) {
    const std::lock_guard lock(ending_);
    if (home_ != nullptr) f(*home_);
  }
  core::loop& loop() const noexcept { return loop_; }
  const boost::asio::io_context::executor_type& executor() const noexcept { return executor_; }
  // Throws errc::wrong_thread on another thread than the loop's. `call` is what the program called.
  void require_loop_thread(const char* call) const;
  p2p::endpoint& endpoint() const noexcept { return endpoint_; }
  flight::recorder& recorder() const noexcept { return recorder_; }

  pending_operations& pending() noexcept { return pending_; }
  const collective_order& order() const noexcept { return order_; }
  failure_spread& failure() noexcept { return failure_; }
  const failure_spread& failure() const noexcept { return failure_; }
  progress_exchange& progress() noexcept { return progress_; }
  const progress_exchange& progress() const noexcept { return progress_; }
  // Returns the next place in the order of collectives for one with this fingerprint. If a frame of a
  // different collective has already arrived for that place, the communicator fails with errc::mismatch.
  std::uint32_t next_sequence(const p2p::fingerprint& mine) noexcept;

  // Where collectives of ranks that share memory work; null: not all members do, or they are too many. The same on all
  // of them.
  host_segments* segments() const noexcept { return segments_.get(); }
  scratch_pool& scratch() noexcept { return scratch_; }
  // What extensions keep with it (extend/side_channel.hpp).
  std::map<const void*, std::shared_ptr<void>>& attributes() noexcept { return attributes_; }

  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release_reference() noexcept;
  // Tells the members that nothing more is done here for their operations. Operations of this rank go on.
  void announce_closing() noexcept;
  // The world ends before the last handle. Returns the segments, which others may still read.
  std::unique_ptr<host_segments> detach() noexcept;

 private:
  // p2p::context_owner
  bool admit(int peer, std::uint32_t sequence, const p2p::fingerprint& theirs) noexcept override;
  std::string mismatch_text(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                            const p2p::fingerprint& theirs) const override {
    return progress_.mismatch_text(peer, sequence, mine, theirs);
  }
  void failed_remotely(int peer, const p2p::failure_message& told) noexcept override {
    failure_.told(peer, told);
  }
  void peer_closed(int peer, errc why, const std::string& text) noexcept override;
  void closed_remotely(int peer) noexcept override;
  std::string closed_text(int peer) const override;
  p2p::progress_message where(std::uint32_t sequence) const noexcept override {
    return progress_.where(sequence);
  }
  void told(int peer, const p2p::progress_message& there) noexcept override { progress_.told(peer, there); }
  bool has_member(int world_rank) const noexcept override { return group_.rank_of(world_rank) >= 0; }
  // failure_spread::owner
  std::uint32_t message_context() const noexcept override { return numbers_.messages(); }
  std::uint32_t made_by() const noexcept override { return numbers_.made_by; }
  void has_failed() noexcept override { recorder_.communicator_failed(record_place_); }
  failure_spread* parent() noexcept override;
  void for_each_child(const std::function<void(failure_spread&)>& f) noexcept override;

  void last_reference_gone() noexcept;
  void close_contexts() noexcept;
  static void check_waiting(void* self) noexcept;

  communicator_home* home_;
  core::loop& loop_;
  const boost::asio::io_context::executor_type executor_;  // of the loop, which may end first
  p2p::endpoint& endpoint_;
  flight::recorder& recorder_;
  const communicator_numbers numbers_;
  comm::group group_;
  std::size_t record_place_;  // index of this communicator in the recording
  std::atomic<int> references_{0};
  // Held while another thread uses home_ or loop_, and while the runtime ends, so that they stay valid.
  std::mutex ending_;
  collective_order order_;
  pending_operations pending_;
  failure_spread failure_;
  scratch_pool scratch_;
  std::unique_ptr<host_segments> segments_;
  std::map<const void*, std::shared_ptr<void>> attributes_;
  progress_exchange progress_;  // last: its task uses the others
};

// Called when an operation of this rank has taken longer than its timeout. Writes who waits for whom to standard
// error, once for all ranks to which that happens within some seconds.
void report_hang(const communicator_state& c) noexcept;

}  // namespace tutti::comm
