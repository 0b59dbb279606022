// SPDX-License-Identifier: Apache-2.0
#include "comm/peer_watch.hpp"

#include "base/log.hpp"
#include "base/process_state.hpp"
#include "flight/recordings.hpp"
#include "transport/tcp/heartbeat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;
using condition = transport::peer_health::condition;
using base::process_state;

// A loop that has not turned for this long is busy. One that is asked and does not answer for this long is
// busy or stopped.
constexpr core::duration too_long_without_turn = 900ms;
constexpr core::duration too_long_without_answer = 400ms;
// A rank of a silent host to which connecting takes this long has died with it. Where hosts live, a lost packet of
// connecting is sent again after a second.
constexpr core::duration too_long_to_connect = 1500ms;
constexpr core::duration shortest_period = 20ms;
// If a check comes this much too late, this rank itself has been busy or stopped.
constexpr core::duration too_late = 400ms;

// For processes of another host, the launcher there knows whether they are stopped, and passes it on.
bool told_to_be_stopped(core::loop& loop, const core::endpoint_record& record) {
  const flight::recordings* const node = loop.recorder_slot().node();
  return node != nullptr && record.pid != 0 && node->is_stopped(record.number, record.pid);
}

std::string seconds(core::duration d) {
  const double s = std::chrono::duration<double>(d).count();
  return s < 10 ? fmt::format("{:.1f} s", s) : fmt::format("{:.0f} s", s);
}

}  // namespace

peer_watch::peer_watch(core::loop& loop, const core::world_info& info, watched& ranks)
    : loop_(loop),
      info_(info),
      ranks_(ranks),
      period_(transport::tcp::heartbeat::period(info.silence_limit)),
      timer_(&fire, this),
      waited_for_(static_cast<std::size_t>(info.size)),
      peers_(waited_for_.size()) {
  // Alone there is nobody to wait for.
  if (info.size > 1) loop.engine().add_sleeper(*this);
}

peer_watch::~peer_watch() { loop_.engine().remove(*this); }

bool peer_watch::arm() noexcept {
  core::progress_engine& engine = loop_.engine();
  if (engine.waiting() && !timer_.armed()) engine.timers().arm(timer_, engine.now() + period_);
  return false;
}

void peer_watch::fire(void* self) noexcept {
  auto& watch = *static_cast<peer_watch*>(self);
  watch.check_all();
  // A loop that spins longer than this does not call arm() in between.
  core::loop& loop = watch.loop_;
  if (loop.engine().waiting() || loop.spin().budget >= watch.period_)
    loop.engine().timers().arm(watch.timer_, loop.engine().now() + watch.next_);
}

void peer_watch::check_all() {
  next_ = period_;
  transport::health_check how{loop_.engine().platform().now()};
  how.again = how.now - timer_.when() > too_late;
  std::fill(waited_for_.begin(), waited_for_.end(), p2p::waits::not_at_all);
  ranks_.mark_waited_for(waited_for_);
  const int size = info_.size;
  int in_turn = -1;  // of those of whom any may bring the awaited message: the next one of this host
  for (int peer = 0; peer < size; ++peer) {
    if (peer == info_.rank) continue;
    p2p::waits waits = waited_for_[static_cast<std::size_t>(peer)];
    if (!silent_hosts_.empty() && is_on_silent_host(peer) && !ranks_.has_gone(peer)) {
      if (!is_on_its_way(peer, how)) continue;
      if (waits == p2p::waits::not_at_all) waits = p2p::waits::for_any;
    }
    if (waits == p2p::waits::not_at_all || ranks_.has_gone(peer)) {
      if (peers_.find(static_cast<std::size_t>(peer)) != nullptr) forget(peer);
    } else if (waits == p2p::waits::for_it || ranks_.made_link(peer) != nullptr) {
      how.loop = waits == p2p::waits::for_it;
      check(peer, how);
      const bool sooner = in_turn < 0 || (in_turn <= last_in_turn_ && peer > last_in_turn_);
      if (!how.loop && sooner && same_numbering(peer)) in_turn = peer;
    }
  }
  if (in_turn >= 0 && !has_ended(in_turn, base::state_of_process(info_.record(in_turn).pid)))
    last_in_turn_ = in_turn;
}

// Of a rank on a silent host: false if it has been given up, because nothing has ever come from it.
bool peer_watch::is_on_its_way(int peer, const transport::health_check& how) {
  if (ranks_.has_heard(peer)) return true;
  state& s = peers_[static_cast<std::size_t>(peer)];
  if (how.again || s.connected_from == core::time_point{}) s.connected_from = how.now;
  if (how.now - s.connected_from < too_long_to_connect) return true;
  give_up(peer,
          fmt::format("nothing comes from its host any more, and no connection to it has come about in {}",
                      seconds(how.now - s.connected_from)));
  return false;
}

void peer_watch::forget(int peer) {
  state& s = peers_[static_cast<std::size_t>(peer)];
  if (transport::link* const l = ranks_.made_link(peer); std::exchange(s.examined, false) && l != nullptr)
    l->rest();
  trust(peer, loop_.engine().now());
  s.ran_resting = false;
}

void peer_watch::check(int peer, const transport::health_check& how) {
  state& s = peers_[static_cast<std::size_t>(peer)];
  transport::link* const l = ranks_.made_link(peer);
  transport::peer_health v;
  if (l != nullptr) {
    // Checks start one period after the wait.
    if (!std::exchange(s.examined, true)) s.waited_from = how.now - period_;
    v = l->examine(how);
  }
  if (v.is == condition::unresponsive) {
    note_silent_host(peer);
    return give_up(peer, fmt::format("nothing has come from its host for {}: the host or the network between "
                                     "has failed (init_options::silence_limit, TUTTI_SILENCE_LIMIT: {})",
                                     seconds(v.since), seconds(info_.silence_limit)));
  }
  // If several ranks may bring the awaited message, each may take its time.
  if (!how.loop || v.is == condition::well) return trust(peer, how.now);
  process_state process =
      same_numbering(peer) ? base::state_of_process(info_.record(peer).pid) : process_state::unknown;
  if (process == process_state::unknown && told_to_be_stopped(loop_, info_.record(peer)))
    process = process_state::stopped;
  if (process == process_state::stopped) {
    const core::duration grace = info_.suspect_grace;
    if (grace.count() > 0 && ranks_.counts_as_failed(peer))
      return give_up(peer, "it is stopped, and other ranks count it as failed already");
    suspect(peer, doubt::stopped, how.now, how.now);
    if (grace.count() > 0 && how.now - s.since >= grace)
      give_up(peer, fmt::format("it has been stopped for {} (init_options::suspect_grace, "
                                "TUTTI_SUSPECT_GRACE; \"off\" for debugging)",
                                seconds(how.now - s.since)));
    return;
  }
  if (has_ended(peer, process)) return;
  // A handler of the program may compute while the loop sleeps.
  const bool runs_resting = v.is == condition::resting && process == process_state::runs;
  const bool not_turning = v.is == condition::not_turning || (runs_resting && s.ran_resting);
  s.ran_resting = runs_resting;
  if (not_turning) {
    const core::duration since = std::min(v.since, how.now - s.waited_from);
    if (since >= too_long_without_turn) {
      suspect(peer, doubt::busy, how.now - since, how.now);
    } else if (v.is == condition::not_turning) {
      next_ = std::min(next_, std::max(too_long_without_turn - since, shortest_period));
    }
  } else if (v.is == condition::not_answering) {
    const doubt what = process == process_state::unknown ? doubt::mute : doubt::busy;
    if (v.since >= too_long_without_answer) suspect(peer, what, how.now - v.since, how.now);
  } else {
    trust(peer, how.now);
  }
}

bool peer_watch::has_ended(int peer, base::process_state process) {
  state& s = peers_[static_cast<std::size_t>(peer)];
  const bool before = std::exchange(s.ended, process == base::process_state::gone);
  if (before && s.ended)  // its last messages have come since
    give_up(peer, "its process has ended; one that it has forked still has its connections");
  return s.ended;
}

bool peer_watch::same_numbering(int peer) const noexcept {
  const core::endpoint_record& mine = info_.record(info_.rank);
  const core::endpoint_record& theirs = info_.record(peer);
  // Ranks that are threads of one process stop together.
  return core::share_pids(mine, theirs) && mine.pid != theirs.pid;
}

void peer_watch::suspect(int peer, doubt what, core::time_point since, core::time_point now) {
  state& s = peers_[static_cast<std::size_t>(peer)];
  if (s.is != what) {
    s.is = what;
    s.since = since;
    s.told = false;
  }
  // A rank that computes on its loop in every step is reported when it is worse than before, not each time.
  const core::duration lasts = now - s.since;
  if (s.told || (what != doubt::stopped && lasts < 2 * s.told_of)) return;
  s.told = true;
  if (what != doubt::stopped) s.told_of = lasts;
  const core::duration grace = info_.suspect_grace, limit = info_.silence_limit;
  const auto [seen, cure] = [&]() -> std::pair<const char*, std::string> {
    switch (what) {
      case doubt::stopped:
        return {"stopped (by SIGSTOP or a debugger)",
                grace.count() > 0 ? fmt::format("it counts as dead after {} (init_options::suspect_grace, "
                                                "TUTTI_SUSPECT_GRACE; \"off\" for debugging)",
                                                seconds(grace))
                                  : "it is waited for (TUTTI_SUSPECT_GRACE=off)"};
      case doubt::busy:
        return {
            "its loop has not turned",
            "it computes, or is in a system call, outside of its loop; co_await tutti::compute(...) keeps "
            "the loop turning"};
      default:
        return {
            "its loop has not answered",
            "it computes outside of its loop (co_await tutti::compute(...) keeps the loop turning), is "
            "stopped, or its host or the network between has failed" +
                (limit.count() > 0 ? fmt::format(", which is known after {} (init_options::silence_limit, "
                                                 "TUTTI_SILENCE_LIMIT)",
                                                 seconds(limit))
                                   : "")};
    }
  }();
  base::log_warning(fmt::format("waiting for {}, which does not progress: {} for {}; {}",
                                info_.describe(peer), seen, seconds(lasts), cure));
}

void peer_watch::trust(int peer, core::time_point now) {
  state& s = peers_[static_cast<std::size_t>(peer)];
  if (s.is == doubt::none) return;
  if (s.told)
    base::log_warning(fmt::format("{} goes on, after {}", info_.describe(peer), seconds(now - s.since)));
  s.is = doubt::none;
  s.told = false;
}

void peer_watch::give_up(int peer, const std::string& why) {
  peers_[static_cast<std::size_t>(peer)].is = doubt::none;
  ranks_.give_up(peer, fmt::format("{} is given up: {}", info_.describe(peer), why));
}

}  // namespace tutti::comm
