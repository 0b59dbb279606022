// SPDX-License-Identifier: Apache-2.0
// One rank's membership in a world: transports, endpoint, communicators, and leaving in order.
#pragma once

#include "bootstrap/elastic_store.hpp"
#include "comm/agreement.hpp"
#include "comm/collective_segment.hpp"
#include "comm/communicator_state.hpp"
#include "comm/peer_watch.hpp"
#include "core/background.hpp"
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
  // `transports` listen already, in order of preference. `server` (rank 0 only, or null) serves the store
  // until the world is left.
  world(core::loop& loop, core::world_info info,
        std::vector<std::unique_ptr<transport::transport>> transports,
        std::shared_ptr<tcp_store_server> server);
  ~world();

  core::loop& loop() noexcept { return loop_; }
  const core::world_info& info() const noexcept { return info_; }
  p2p::endpoint& endpoint() noexcept { return endpoint_; }
  communicator_state& world_communicator() noexcept { return *world_communicator_; }

  const peer_watch& watch() const noexcept { return watch_; }
  // The link to a rank, where there is one yet, else null.
  transport::link* made_link(int peer) noexcept;
  // Raises `by_peer` to how this rank waits for each other one.
  void mark_waited_for(std::vector<p2p::waits>& by_peer) noexcept;

  // router
  transport::link& link_to(int peer) override;
  std::string describe(int peer) const override;
  bool has_left(int peer) const noexcept override { return recorded_leaving(peer).value_or(false); }
  void agree(int peer, std::uint32_t context, std::uint32_t round,
             std::span<const std::byte> payload) noexcept override {
    agreement_.received(peer, context, round, payload);
  }
  void peer_closed(int peer) noexcept override { agreement_.peer_closed(peer); }

  void closed(communicator_state& c) noexcept;  // its last handle has gone
  // f(communicator_state&) for those that there are; f may close and fail any of them.
  template <class F>
  void for_each(const F& f) noexcept {
    std::uint64_t last = 0;
    for (;;) {
      const auto next = std::find_if(communicators_.begin(), communicators_.end(),
                                     [last](const communicator_state* c) { return c->serial() > last; });
      if (next == communicators_.end()) return;
      last = (*next)->serial();
      f(**next);
    }
  }
  std::uint64_t next_serial() noexcept { return ++made_; }
  bool has_communicators() const noexcept { return !communicators_.empty(); }
  bool is_last(const communicator_state& c) const noexcept {
    return communicators_.size() == 1 && communicators_.front() == &c;
  }
  // A number for a new communicator that no other rank of this world gives out. Throws errc::resources at the
  // end of their range (2^28 / size of the world).
  std::uint32_t next_communicator_id();
  // Of the transport over which all of `members` reach each other, when they can read each other's memory;
  // else null.
  transport::neighbours* memory_of(const std::vector<int>& members) const noexcept;
  // The segment of a communicator that is over: kept until the others have read what is on it; when the
  // communicator has `failed`, to the end.
  void retire(std::unique_ptr<collective_segment> b, bool failed) noexcept;
  // `members`: ranks of this world; `parent`: the id of the communicator that it is made from.
  communicator_state& make_communicator(std::uint32_t id, std::uint32_t parent, std::string name,
                                        std::vector<int> members);
  // The one of this message context; null: it is not open here.
  communicator_state* find(std::uint32_t message_context) const noexcept;
  agreement& survivors() noexcept { return agreement_; }

  // Ends the membership: what has been sent is safe with the peers, or the deadline has passed, when this
  // completes.
  task<> leave(core::time_point deadline);
  // Every communicator fails, here and on its other members, with errc::peer_failed and this text.
  void fail(const std::string& text) noexcept;
  // What its communicators wait for here, for people; empty: nothing.
  std::string pending() const;
  // Completes when all that is queued has left, or at the deadline.
  task<> flush(core::time_point deadline);
  void cut() noexcept;

  // What tutti::gpu has opened for this world; it goes with the last communicator.
  std::shared_ptr<detail::device_side> devices;

  // How the ranks of this world meet again. Empty: there is no way.
  std::function<task<communicator>(world&)> meet_again;

  // Of a world that newcomers may join; else null.
  std::unique_ptr<bootstrap::newcomer_watch> newcomers;

  // Called when the last communicator has gone, from the loop.
  std::function<void(world&)> on_idle;
  core::time_point leave_by{};  // of one that is being left
  bool failing = false;         // it is cut, when it has had the time to say why
  bool flushed = false;

 private:
  // Whether `peer` has left in order, or is about to. Nothing: this rank cannot read the recording of `peer`.
  std::optional<bool> recorded_leaving(int peer) const noexcept;
  // Connects to the ranks that would otherwise not hear that this rank leaves in order. Such a rank finds the
  // listeners of this one closed when it needs it later, and cannot tell leaving from dying.
  void meet_unmet() noexcept;

  core::loop& loop_;
  const core::world_info info_;
  std::vector<std::unique_ptr<transport::transport>> transports_;
  std::vector<transport::link*> links_;  // by peer; null until needed
  p2p::endpoint endpoint_;
  std::vector<communicator_state*> communicators_;  // in the order of their making
  std::uint64_t made_ = 0;
  communicator_state* world_communicator_ = nullptr;
  agreement agreement_;
  std::shared_ptr<tcp_store_server> server_;
  std::uint32_t given_out_ = 0;
  std::vector<std::unique_ptr<collective_segment>> retired_;  // to go when all have read them
  std::vector<std::unique_ptr<collective_segment>> failed_segments_;
  peer_watch watch_;
};

}  // namespace tutti::comm
