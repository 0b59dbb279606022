// SPDX-License-Identifier: Apache-2.0
// progress_exchange: what the ranks of a communicator tell each other about how far they are in its collectives, so
// that a rank that waits learns of a mismatch, of an end, or whom to name.
//
//   notice    a rank that waits sends its call to those that it waits for, which compare it
//   inquiry   a rank whose collective takes too long asks all, and fails the communicator with the answers
//   closing   a rank that waits for another makes sure that it would hear of that one's end
#pragma once

#include "comm/collective_order.hpp"
#include "comm/failure_spread.hpp"
#include "comm/group.hpp"
#include "comm/host_segments.hpp"
#include "core/loop.hpp"
#include "core/running_task.hpp"
#include "flight/recorder.hpp"
#include "p2p/endpoint.hpp"

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::comm {

class progress_exchange {
 public:
  // `segment` may be null, and become null.
  progress_exchange(core::loop& loop, p2p::endpoint& endpoint, std::uint32_t context, const group& members,
                    collective_order& order, failure_spread& failure,
                    const std::unique_ptr<host_segments>& segments);

  // Counts `c` as in progress. If it lasts long, this rank tells others what it waits in.
  void add(running_collective& c) noexcept;
  // How far this rank is with collective `sequence`.
  p2p::progress_message where(std::uint32_t sequence) const noexcept;
  // `peer` has answered an inquiry.
  void told(int peer, const p2p::progress_message& there) noexcept;

  // `peer` has called `theirs` under this number, and this rank `mine`: fails the communicator with errc::mismatch.
  void mismatch(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                const p2p::fingerprint& theirs) noexcept;
  std::string mismatch_text(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                            const p2p::fingerprint& theirs) const;
  // Collective `sequence`, in progress on this rank, has taken too long. Asks all ranks how far they are.
  // When all have answered, or after a tenth of a second, fails the communicator with `why` and `text` plus
  // the answers. Does nothing if the collective ends meanwhile.
  void explain_and_fail(std::uint32_t sequence, errc why, std::string text) noexcept;
  // Waits until all ranks have called the collective that was started last, unless it ends on each only then. If one
  // called a different collective, the communicator fails with errc::mismatch on all ranks. Ends without a result at
  // the deadline, if a rank has left, or while collectives are in progress. This object must stay open meanwhile.
  task<> compare_last(core::time_point deadline);

  // Asks each rank that this one waits for, with `anyone` each member, to tell when it closes the communicator: once.
  void ask_who_closes(std::uint32_t message_context, bool anyone) noexcept;
  // Raises `by_peer`, by rank of the world, for the ranks that collectives with the segment wait for.
  void mark_waited_for(std::vector<p2p::waits>& by_peer) const noexcept;

  void shut_down() noexcept;

 private:
  struct inquiry {
    std::uint32_t sequence = 0;
    errc why = errc::success;
    std::string text;
    std::vector<std::optional<p2p::progress_message>> answers = {};  // by rank
  };
  core::progress_engine& engine() const noexcept { return loop_.engine(); }
  int waits_on_segment_for(std::uint32_t sequence) const noexcept;  // rank of the world; -1: none
  template <class Message>
  void send(int member, const Message& m) noexcept {
    endpoint_.control().send(context_, member, m);
  }
  void ask_who_closes(int member) noexcept;
  task<> inquire();
  std::string findings(const inquiry& all) const;
  static void give_notices(void* self) noexcept;

  core::loop& loop_;
  p2p::endpoint& endpoint_;
  const std::uint32_t context_;  // of collectives
  const group& members_;
  collective_order& order_;
  failure_spread& failure_;
  const std::unique_ptr<host_segments>& segments_;
  core::timer notice_timer_;
  // By rank: this rank has waited for it and asked it, so that it tells when it closes this communicator.
  std::vector<bool> asked_;
  std::list<inquiry> inquiries_;  // in order; the other ranks have been asked about the first only
  inquiry* comparing_ = nullptr;  // of compare_last()
  bool shut_down_ = false;
  core::background_tasks inquiring_;  // last: its task uses the others
};

}  // namespace tutti::comm
