// SPDX-License-Identifier: Apache-2.0
// peer_watch: watches the ranks that this rank waits for. It finds those that make no progress, and those
// that died without a report.
//
// While operations wait and the loop sleeps, it checks about twice a second. It checks once more when a peer
// is about to have done nothing for too long. Between checks it costs nothing. A peer without progress is a
// suspect and is named once. It counts as dead when its host has been silent for the silence limit, or when
// its process has been stopped for the grace period, or is stopped and others count it as failed. So does one whose
// process has ended, although its connections are open: a process that it forked has them. The kernel
// of a shared host knows whether a process is stopped, or has ended; for other hosts their launcher tells the former. A busy peer
// never counts as dead: a rank may compute for a minute without a turn of its loop. Where the two cannot be
// told apart, only the timeouts of operations apply.
//
// A host that has been silent has taken all its ranks with it. So they are watched whether this rank waits for them or
// not. One from which nothing has ever come counts as dead if it lets a second of connecting pass. This rank may also
// hear from another that a host is silent.
#pragma once

#include "base/process_state.hpp"
#include "base/sparse_array.hpp"
#include "core/loop.hpp"
#include "core/world_info.hpp"
#include "p2p/endpoint.hpp"
#include "transport/link.hpp"

#include <set>
#include <string>
#include <vector>

namespace tutti::comm {

class peer_watch final : public core::source {
 public:
  // The ranks of a world, which are watched.
  class watched {
   public:
    // Raises `by_peer` to how this rank waits for each other rank.
    virtual void mark_waited_for(std::vector<p2p::waits>& by_peer) noexcept = 0;
    virtual transport::link* made_link(int peer) noexcept = 0;  // null: none yet
    virtual bool has_gone(int peer) const noexcept = 0;
    // Whether anything has ever come from `peer`. If not, connects to it.
    virtual bool has_heard(int peer) noexcept = 0;
    // Whether some communicator counts `peer` among its failed ranks, perhaps because others do.
    virtual bool counts_as_failed(int peer) const noexcept = 0;
    // Ends the link to `peer` with errc::peer_failed and this text.
    virtual void give_up(int peer, const std::string& text) noexcept = 0;

   protected:
    ~watched() = default;
  };

  peer_watch(core::loop& loop, const core::world_info& info, watched& ranks);
  ~peer_watch() override;

  // Whether `peer`, a rank of the world, was waited for without progress at the last check.
  bool suspects(int peer) const noexcept {
    const state* const s = peers_.find(static_cast<std::size_t>(peer));
    return s != nullptr && s->is != doubt::none;
  }

  // Whether the host of `peer` is known to be silent.
  bool is_on_silent_host(int peer) const noexcept {
    return silent_hosts_.contains(info_.hosts.host_of(peer));
  }
  // Another rank says so.
  void note_silent_host(int peer) { silent_hosts_.insert(info_.hosts.host_of(peer)); }

  bool poll() noexcept override { return false; }
  bool arm() noexcept override;

 private:
  enum class doubt : std::uint8_t { none, stopped, busy, mute };
  struct state {
    bool examined = false;
    core::time_point
        connected_from{};  // on a silent host, since this check nothing has come from it; 0: it has not begun
    doubt is = doubt::none;
    bool told = false;  // in this episode
    core::time_point waited_from{};
    bool ran_resting = false;  // at the last check its process ran although its loop said that it sleeps
    bool ended = false;        // at the last check its process had ended
    core::time_point since{};  // start of the episode
    core::duration told_of{};  // the longest reported time of a busy peer
  };

  static void fire(void* self) noexcept;
  void check_all();
  void check(int peer, const transport::health_check& how);
  bool is_on_its_way(int peer, const transport::health_check& how);
  void forget(int peer);
  void suspect(int peer, doubt what, core::time_point since, core::time_point now);
  void trust(int peer, core::time_point now);
  void give_up(int peer, const std::string& why);
  // Gives the peer up the second time.
  bool has_ended(int peer, base::process_state process);
  bool same_numbering(int peer) const noexcept;

  core::loop& loop_;
  const core::world_info& info_;
  watched& ranks_;
  const core::duration period_;
  core::duration next_{};  // until the next check
  int last_in_turn_ = -1;
  core::timer timer_;
  std::vector<p2p::waits> waited_for_;
  base::sparse_array<state> peers_;
  std::set<int> silent_hosts_;
};

}  // namespace tutti::comm
