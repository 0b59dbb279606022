// SPDX-License-Identifier: Apache-2.0
// Looks after the ranks that this rank waits for: which of them do not progress, and which are dead without
// anybody having said so.
//
// While operations wait and the loop sleeps it looks about twice a second, at no cost in between; once more,
// when a peer is about to have done nothing for too long. A peer that does not progress is a suspect, and
// named once; it is dead when its host says nothing within the silence limit, or when its process is known to
// be stopped, for the grace: by the kernel of a shared host, or by the launcher of another one. One that is
// only busy is never dead: a rank may well compute for a minute without a turn of its loop. Where nobody can
// tell the two apart, the operations' timeouts have to do.
#pragma once

#include "core/engine.hpp"
#include "p2p/endpoint.hpp"
#include "transport/peer_health.hpp"

#include <string>
#include <vector>

namespace tutti::comm {

class world;

class peer_watch final : public core::source {
 public:
  explicit peer_watch(world& w);
  ~peer_watch() override;

  // Whether `peer`, a rank of the world, is waited for and does not progress, as of the last look.
  bool suspects(int peer) const noexcept { return of(peer).is != doubt::none; }
  // That as text, "stopped for 3 s" or "its loop has not turned for 2 s"; empty: it is no suspect.
  std::string describe(int peer) const;

  bool poll() noexcept override { return false; }
  bool arm() noexcept override;

 private:
  enum class doubt : std::uint8_t { none, stopped, busy, mute };
  struct state {
    bool examined = false;
    doubt is = doubt::none;
    bool told = false;  // of this episode
    core::time_point waited_from{};
    bool ran_resting = false;  // at the last look: its process ran, while its loop said that it sleeps
    core::time_point since{};  // of the episode
    core::duration told_of{};  // the longest that was told of busy ones
  };

  const state& of(int peer) const noexcept { return peers_[static_cast<std::size_t>(peer)]; }
  static void fire(void* self) noexcept;
  void check_all();
  void check(int peer, const transport::health_check& how);
  void forget(int peer);
  void suspect(int peer, doubt what, core::time_point since, core::time_point now);
  void trust(int peer, core::time_point now);
  void give_up(int peer, const std::string& why);
  bool same_numbering(int peer) const noexcept;
  std::string describe(const state& s, core::time_point now) const;

  world& world_;
  const core::duration period_;
  core::duration next_{};  // until the next look
  core::timer timer_;
  std::vector<p2p::waits> waited_for_;
  std::vector<state> peers_;
};

}  // namespace tutti::comm
