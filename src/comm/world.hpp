// SPDX-License-Identifier: Apache-2.0
// world: one rank's membership in a world: transports, endpoint, communicators, and leaving in order.
#pragma once

#include "base/sparse_array.hpp"
#include "bootstrap/elastic_store.hpp"
#include "bootstrap/environment.hpp"
#include "comm/agreement.hpp"
#include "comm/communicator_home.hpp"
#include "comm/communicator_state.hpp"
#include "comm/host_segments.hpp"
#include "comm/peer_watch.hpp"
#include "core/world_info.hpp"
#include "p2p/endpoint.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti {
class communicator;
class store;
}  // namespace tutti

namespace tutti::comm {

class world;

// Whoever holds a world.
class world_owner {
 public:
  // Called from the loop when the last communicator has gone.
  virtual void idle(world& w) noexcept = 0;
  // The ranks of a world with a next_job meet again.
  virtual task<communicator> meet_again(world& old) = 0;
  // Joins a world whose ranks meet in a store of the program.
  virtual task<communicator> join(init_options options, store& through) = 0;

 protected:
  ~world_owner() = default;
};

class world final : public communicator_home, p2p::router, peer_watch::watched {
 public:
  // `transports` already listen and come in order of preference. `server` (on rank 0, or null) serves the
  // store until the world is left. `owner` may be null.
  world(core::loop& loop, core::world_info info,
        std::vector<std::unique_ptr<transport::transport>> transports,
        std::shared_ptr<tcp_store_server> server, world_owner* owner);
  ~world();

  core::loop& loop() noexcept override { return loop_; }
  const core::world_info& info() const noexcept override { return info_; }
  p2p::endpoint& endpoint() noexcept override { return endpoint_; }
  const open_communicators& communicators() const noexcept override { return communicators_; }
  communicator_state& world_communicator() noexcept { return *world_communicator_; }
  world_owner* owner() noexcept { return owner_; }
  agreement& survivors() noexcept { return agreement_; }

  // The name of the transport that connects this rank and `peer`.
  const char* transport_to(int peer) noexcept { return way_to(peer).name(); }
  // Returns the link to a rank, or null if there is none yet.
  transport::link* made_link(int peer) noexcept override;

  // `members` are ranks of this world.
  communicator_state& make_communicator(communicator_numbers numbers, std::string name,
                                        std::vector<int> members);
  // The same with an id that other ranks gave. Throws errc::protocol if no rank gives it out, or this rank has
  // used it.
  communicator_state& make_agreed_communicator(communicator_numbers numbers, std::string name,
                                               std::vector<int> members);
  std::uint32_t next_communicator_id() override;
  bool is_free(std::uint32_t id) const noexcept override;
  // A collective that makes a communicator has failed on this rank. Others may have completed it.
  void note_unmade() noexcept { ++unmade_; }

  // Leaves the world. Completes when the peers have what was sent, or at the deadline.
  task<> leave(core::time_point deadline);
  // Fails every communicator with errc::peer_failed and this text, on this rank and its other members.
  void fail(const std::string& text) noexcept;
  // Whether something queued has not left.
  bool has_queue() const noexcept;
  void cut() noexcept;

  // What extensions keep with this world; freed with the last communicator.
  std::map<const void*, std::shared_ptr<void>> attributes;
  // How the ranks of this world meet again. Empty: they cannot.
  std::optional<bootstrap::job> next_job;
  // Set for a world that newcomers may join; otherwise null.
  std::unique_ptr<bootstrap::newcomer_watch> newcomers;
  bool failing = false;  // it is cut once it has had the time to say why

 private:
  // communicator_home
  transport::neighbours* memory_of(const std::vector<int>& members) const noexcept override;
  bool suspects(int peer) const noexcept override { return watch_.suspects(peer); }
  bool is_on_silent_host(int peer) const noexcept override { return watch_.is_on_silent_host(peer); }
  void note_silent_host(int peer) override { watch_.note_silent_host(peer); }
  void close(communicator_state& c, std::unique_ptr<host_segments> left) noexcept override;
  // p2p::router
  transport::link& link_to(int peer) override;
  std::string describe(int peer) const override { return info_.describe(peer); }
  bool has_left(int peer) const noexcept override { return recorded_leaving(peer).value_or(false); }
  void agree(int peer, std::uint32_t context, const p2p::agreement_message& m) noexcept override {
    agreement_.received(peer, context, m.round, m.payload);
  }
  bool renounce(std::uint32_t context) noexcept override;
  void peer_closed(int peer) noexcept override { agreement_.peer_closed(peer); }
  // peer_watch::watched
  void mark_waited_for(std::vector<p2p::waits>& by_peer) noexcept override;
  bool has_gone(int peer) const noexcept override { return endpoint_.peers().gone(peer); }
  bool has_heard(int peer) noexcept override;
  bool counts_as_failed(int peer) const noexcept override;
  void give_up(int peer, const std::string& text) noexcept override;

  // Keeps the segments of a closed communicator until the others have read what is on them, or have closed the
  // communicator as well if it has `failed`.
  void retire(std::unique_ptr<host_segments> b, bool failed) noexcept;
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
  world_owner* const owner_;
  base::sparse_array<transport::link*> links_;  // by peer; null until needed
  p2p::endpoint endpoint_;
  // After the endpoint, to be destroyed before it: frames in its memory may still wait in the links.
  std::vector<std::unique_ptr<transport::transport>> transports_;
  open_communicators communicators_;
  communicator_state* world_communicator_ = nullptr;
  agreement agreement_;
  std::shared_ptr<tcp_store_server> server_;
  std::uint32_t given_out_ = 0;
  // collectives that have failed here to make a communicator, of which no other rank has told
  unsigned unmade_ = 0;
  struct retired_segments {
    std::unique_ptr<host_segments> kept;  // until all have read them
    bool failed;
  };
  std::vector<retired_segments> retired_;
  peer_watch watch_;
};

// The world of a communicator that is not detached.
inline world& world_of(const communicator_state& c) noexcept { return static_cast<world&>(c.home()); }

}  // namespace tutti::comm
