// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tutti/detail/flow.hpp>
#include <utility>

namespace tutti::sim {

using tutti::transport::cancel_result;
using tutti::transport::destination_buffer;
using tutti::transport::frame_kind;
using tutti::transport::outgoing;

sim_link::sim_link(sim_transport& owner, int peer) noexcept : owner_(owner), peer_(peer) {}

bool sim_link::submit(outgoing& o) noexcept {
  if (said_farewell_ || (owner_.muted() && at_ == phase::closed)) return false;
  return owner_.fabric_.submit(*this, o);
}

cancel_result sim_link::cancel(outgoing& o) noexcept {
  if (!static_cast<base::list_hook<tutti::transport::outgoing_tag>&>(o).linked()) return cancel_result::gone;
  return owner_.fabric_.cancel(*this, o);
}

bool sim_link::redirect_destination(void* owner, const destination_buffer& instead) noexcept {
  if (half_way_ == nullptr || where_.owner != owner) return false;
  const destination_buffer part = tutti::transport::part_of(instead, half_way_->head);
  const std::size_t here = std::min({half_way_->come, where_.room, part.room});
  if (here > 0) std::memcpy(part.at, where_.at, here);
  where_ = part;
  return true;
}

bool sim_link::sends_eagerly(const void*, std::size_t bytes) const noexcept {
  return bytes <= owner_.fabric_.settings().network.eager_limit;
}

void sim_link::receive(const packet_ref& p) noexcept {
  if (at_ == phase::closed || (owner_.muted() && !p->is_end && p->head.kind != frame_kind::leave)) return;
  if (p->is_end) return close(p->why, std::move(p->text));
  if (p->head.kind == frame_kind::leave) {
    owner_.fabric_.hang_up(*this, errc::peer_left, owner_.describe(owner_.rank()) + " has finished and left");
    return close(errc::peer_left, owner_.describe(peer_) + " has finished and left");
  }
  tutti::transport::inbound& up = *owner_.up_;
  const std::size_t until = p->in_parts && p->come == 0 ? p->payload.size() / 2 : p->payload.size();
  if (half_way_ == nullptr) where_ = up.begin(peer_, p->head);
  const std::size_t end = std::min(where_.room, until);
  if (end > p->come) std::memcpy(where_.at + p->come, p->payload.data() + p->come, end - p->come);
  p->come = until;
  if (p->in_parts) {
    p->in_parts = false;  // the rest is on its way
    half_way_ = p;
    return;
  }
  half_way_ = nullptr;
  up.end(peer_, p->head, std::exchange(where_, destination_buffer{}));
}

void sim_link::close(errc why, std::string text) noexcept {
  if (at_ == phase::closed) return;
  at_ = phase::closed;
  base::list_hook<sending_tag>::unlink();
  half_way_ = nullptr;
  where_ = destination_buffer{};
  hand_back();
  if (!owner_.muted()) owner_.up_->closed(peer_, why, std::move(text));
  owner_.changed();
}

void sim_link::hand_back() noexcept {
  frames rest;
  rest.splice_back(messages_);
  rest.splice_back(long_data_);
  while (outgoing* o = rest.pop_front()) o->done(*o, false);
}

void sim_link::leave() noexcept {
  where_ = destination_buffer{};
  if (at_ == phase::idle) at_ = phase::closed;
  owner_.fabric_.proceed(*this);
}

sim_transport::sim_transport(fabric& f, core::loop& loop, int rank) noexcept
    : polled_transport(loop),
      fabric_(f),
      rank_(rank),
      leave_timer_(
          [](void* self) noexcept {
            tutti::detail::resume_bounded(std::exchange(static_cast<sim_transport*>(self)->waiting_, {}));
          },
          this) {}

void sim_transport::open(const core::world_info& info, tutti::transport::inbound& up) {
  fabric_.at(rank_).transport = this;
  join_loop(info, up);
}

sim_link& sim_transport::at(int peer) {
  const auto [place, is_new] = links_.try_emplace(peer, *this, peer);
  if (is_new && muted()) place->second.at_ = sim_link::phase::closed;
  return place->second;
}

bool sim_transport::has_queue() const noexcept {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& l) { return !l.second.closed() && l.second.waiting(); });
}

bool sim_transport::any_open() const noexcept {
  return std::any_of(links_.begin(), links_.end(), [](const auto& l) { return !l.second.closed(); });
}

bool sim_transport::poll() noexcept {
  bool any = fabric_.send_waiting(*this);
  for (sim_link* l : std::exchange(ended_, {})) {
    l->hand_back();
    any = true;
  }
  port& p = fabric_.at(rank_);
  if (std::exchange(p.may_deliver, false) && !p.inbox.empty()) {
    const packet_ref next = std::move(p.inbox.front());
    p.inbox.pop_front();
    at(next->from).receive(next);
    any = true;
  }
  return any;
}

void sim_transport::changed() noexcept {
  // From the loop, not from inside a link.
  if (waiting_) loop_.engine().timers().arm(leave_timer_, loop_.engine().platform().now());
}

task<> sim_transport::leave(core::time_point deadline) {
  if (!attached_) co_return;
  leaving_ = true;
  for (auto& [peer, l] : links_) l.leave();
  struct link_change {
    explicit link_change(sim_transport& t, core::time_point d) noexcept : of(t), until(d) {}
    sim_transport& of;
    core::time_point until;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) const {
      of.waiting_ = h;
      of.loop_.engine().timers().arm(of.leave_timer_, until);
    }
    void await_resume() const noexcept {}
  };
  while (attached_ && any_open() && loop_.engine().platform().now() < deadline)
    co_await link_change(*this, deadline);
  for (auto& [peer, l] : links_) {
    if (l.closed()) continue;
    fabric_.hang_up(l, l.said_farewell_ ? errc::peer_left : errc::peer_failed,
                    describe(rank_) + " has given up waiting for its last messages to be read");
    l.close(errc::peer_left, "");
  }
  fabric_.at(rank_).left = true;
  detach();
}

void sim_transport::cut() noexcept {
  leaving_ = true;
  if (attached_) fabric_.bury(rank_);
  sim_link::frames dropped;
  for (auto& [peer, l] : links_) {
    dropped.splice_back(l.messages_);
    dropped.splice_back(l.long_data_);
    l.half_way_ = nullptr;
    l.base::list_hook<sending_tag>::unlink();
    l.at_ = sim_link::phase::closed;
  }
  detach();
}

void sim_transport::detach() noexcept {
  if (!leave_loop()) return;
  fabric_.at(rank_).gone = true;
  leave_timer_.cancel();
}

}  // namespace tutti::sim
