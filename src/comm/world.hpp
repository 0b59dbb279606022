// SPDX-License-Identifier: Apache-2.0
// world: one rank's membership in a world: transports, endpoint, communicators, and leaving in order.
#pragma once

#include "bootstrap/elastic_store.hpp"
#include "comm/agreement.hpp"
#include "comm/collective_segment.hpp"
#include "comm/communicator_state.hpp"
#include "comm/peer_watch.hpp"
#include "core/world_info.hpp"
#include "p2p/endpoint.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti {
class communicator;
}

namespace tutti::comm {

class world final : public p2p::router {
 public:
  // `transports` already listen and come in order of preference. `server` (on rank 0, or null) serves the
  // store until the world is left.
  world(core::loop& loop, core::world_info info,
        std::vector<std::unique_ptr<transport::transport>> transports,
        std::shared_ptr<tcp_store_server> server);
  ~world();

  core::loop& loop() noexcept { return loop_; }
  const core::world_info& info() const noexcept { return info_; }
  p2p::endpoint& endpoint() noexcept { return endpoint_; }
  communicator_state& world_communicator() noexcept { return *world_communicator_; }

  const peer_watch& watch() const noexcept { return watch_; }
  // Returns the link to a rank, or null if there is none yet.
  transport::link* made_link(int peer) noexcept;
  // Raises `by_peer` to how this rank waits for each other rank.
  void mark_waited_for(std::vector<p2p::waits>& by_peer) noexcept;

  // p2p::router
  transport::link& link_to(int peer) override;
  std::string describe(int peer) const override { return info_.describe(peer); }
  bool has_left(int peer) const noexcept override { return recorded_leaving(peer).value_or(false); }
  void agree(int peer, std::uint32_t context, const p2p::agreement_message& m) noexcept override {
    agreement_.received(peer, context, m.round, m.payload);
  }
  bool renounce(std::uint32_t context) noexcept override;
  void peer_closed(int peer) noexcept override { agreement_.peer_closed(peer); }

  void closed(communicator_state& c) noexcept;  // called when its last handle has gone
  // Calls f(communicator_state&) for each communicator; f may close and fail any of them.
  template <class F>
  void for_each(const F& f) noexcept {
    for (communicator_state* const c : std::vector(communicators_))
      if (std::ranges::find(communicators_, c) != communicators_.end()) f(*c);
  }
  bool has_communicators() const noexcept { return !communicators_.empty(); }
  bool is_last(const communicator_state& c) const noexcept {
    return communicators_.size() == 1 && communicators_.front() == &c;
  }
  // Returns a number for a new communicator that no other rank of this world gives out. Throws
  // errc::resources at the end of the range (2^28 / size of the world).
  std::uint32_t next_communicator_id();
  // The neighbours of the transport by which all `members` reach each other, if they can read each other's
  // memory; otherwise null.
  transport::neighbours* memory_of(const std::vector<int>& members) const noexcept;
  // Keeps the segment of a closed communicator until the others have read what is on it. If the communicator
  // has `failed`, its memory goes with this process.
  void retire(std::unique_ptr<collective_segment> b, bool failed) noexcept;
  // `members` are ranks of this world; `parent` is the id of the communicator that it is made from, by its collective
  // `made_by` if that is not 0.
  communicator_state& make_communicator(std::uint32_t id, std::uint32_t parent, std::string name,
                                        std::vector<int> members, std::uint32_t made_by = 0);
  // The same with a number that other ranks gave. Throws errc::protocol if no rank gives it out, or this rank has
  // used it.
  communicator_state& make_agreed_communicator(std::uint32_t id, std::uint32_t parent, std::string name,
                                               std::vector<int> members, std::uint32_t made_by = 0);
  // Whether this rank can open a communicator of this number.
  bool is_free(std::uint32_t id) const noexcept;
  // A collective that makes a communicator has failed on this rank. Others may have completed it.
  void note_unmade() noexcept { ++unmade_; }
  // The communicator of this message context; null if it is not open on this rank.
  communicator_state* find(std::uint32_t message_context) const noexcept;
  agreement& survivors() noexcept { return agreement_; }

  // Leaves the world. Completes when the peers have what was sent, or at the deadline.
  task<> leave(core::time_point deadline);
  // Whether some communicator counts `peer` among its failed ranks, perhaps because others do.
  bool counts_as_failed(int peer) const noexcept;
  // Fails every communicator with errc::peer_failed and this text, on this rank and its other members.
  void fail(const std::string& text) noexcept;
  // Whether something queued has not left.
  bool has_queue() const noexcept;
  void cut() noexcept;

  // What tutti::gpu has opened for this world; freed with the last communicator.
  std::shared_ptr<detail::device_side> devices;

  // How the ranks of this world meet again. Empty: they cannot.
  std::function<task<communicator>(world&)> meet_again;

  // Set for a world that newcomers may join; otherwise null.
  std::unique_ptr<bootstrap::newcomer_watch> newcomers;

  // Called from the loop when the last communicator has gone.
  std::function<void(world&)> on_idle;
  bool failing = false;  // it is cut once it has had the time to say why

 private:
  // The transport that connects this rank and `peer`.
  transport::transport& way_to(int peer) noexcept;
  // Whether `peer` has left in order or is about to. Empty: this rank cannot read the recording of `peer`.
  std::optional<bool> recorded_leaving(int peer) const noexcept;
  // Connects to the ranks that would otherwise not hear that this rank leaves in order. If such a rank needed
  // this one later, it would find the listeners closed and could not tell leaving from dying. In two cases a
  // rank that has left still counts as dead: the world has more than 64 ranks, or the other rank's loop did
  // not turn within the 5 s that leaving waits.
  void meet_unmet() noexcept;

  core::loop& loop_;
  const core::world_info info_;
  std::vector<transport::link*> links_;  // by peer; null until needed
  p2p::endpoint endpoint_;
  // After the endpoint, to be destroyed before it: frames in its memory may still wait in the links.
  std::vector<std::unique_ptr<transport::transport>> transports_;
  std::vector<communicator_state*> communicators_;  // in the order in which they were made
  communicator_state* world_communicator_ = nullptr;
  agreement agreement_;
  std::shared_ptr<tcp_store_server> server_;
  std::uint32_t given_out_ = 0;
  // collectives that have failed here to make a communicator, of which no other rank has told
  unsigned unmade_ = 0;
  std::vector<std::unique_ptr<collective_segment>> retired_;  // destroyed when all have read them
  peer_watch watch_;
};

}  // namespace tutti::comm
