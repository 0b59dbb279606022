// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_transport.hpp"

#include <algorithm>
#include <cstring>
#include <tutti/detail/flow.hpp>
#include <utility>

namespace tutti::sim {

using tutti::transport::cancel_result;
using tutti::transport::destination_buffer;
using tutti::transport::frame;
using tutti::transport::frame_kind;
using tutti::transport::outgoing;

sim_link::sim_link(sim_transport& owner, int peer) noexcept : owner_(owner), peer_(peer) {}

// ---- sending ----

nanoseconds sim_link::port_free() const noexcept {
  fabric& f = owner_.fabric_;
  return f.at(owner_.rank()).out_free[f.between(owner_.rank(), peer_).wire];
}

bool sim_link::submit(outgoing& o) noexcept {
  if (said_farewell_ || (owner_.muted() && at_ == phase::closed)) return false;
  fabric& f = owner_.fabric_;
  const int rank = owner_.rank();
  port& p = f.at(rank);
  o.progress = 0;
  const std::uint64_t bytes = payload_bytes(o.head);
  const bool is_long = tutti::transport::is_long(o, f.settings().network.slice);
  const auto queue = [&] {
    (is_long ? long_data_ : messages_).push_back(o);
    return false;
  };
  p.so_far.bytes += bytes;
  if (++p.so_far.frames == p.dies_at_frame) p.dying = true;
  if (p.dying || p.gone) return queue();
  if (at_ == phase::closed) {
    owner_.ended_.push_back(this);
    f.want_step(rank, f.now());
    return queue();
  }
  p.cpu_free = std::max(p.cpu_free, f.now()) + f.settings().network.overhead.count();
  if (at_ == phase::idle) f.connect(*this);
  if (at_ != phase::open) return queue();
  const nanoseconds out_free = port_free();
  const bool is_free = out_free <= p.cpu_free && !f.numbers().happens(f.settings().noise.busy);
  if (!waiting() && is_free && !is_long) {
    f.transmit(*this, o.head, o.payload, static_cast<std::size_t>(bytes));
    return true;
  }
  await_port();
  f.want_step(rank, out_free);
  return queue();
}

cancel_result sim_link::cancel(outgoing& o) noexcept {
  if (!o.linked()) return cancel_result::gone;
  fabric& f = owner_.fabric_;
  const port& p = f.at(owner_.rank());
  const bool first = messages_.front() == &o || long_data_.front() == &o;
  const bool goes = first && !p.dying && !p.gone && at_ == phase::open &&
                    f.numbers().happens(f.settings().noise.unstoppable);
  o.unlink();
  if (!goes) return cancel_result::gone;
  // As on a stream after the frame had begun to leave: what its header has promised is finished.
  return send_slice(o) ? cancel_result::leaves : cancel_result::gone;
}

bool sim_link::send_slice(outgoing& o) {
  const frame head = next_slice(o.head, o.progress, owner_.fabric_.settings().network.slice);
  const std::uint64_t bytes = payload_bytes(head);
  owner_.fabric_.transmit(*this, head, bytes > 0 ? o.payload + o.progress : nullptr,
                          static_cast<std::size_t>(bytes));
  o.progress += bytes;
  return o.progress >= payload_bytes(o.head);
}

bool sim_link::send_front() {
  outgoing* const o = messages_.front() != nullptr ? messages_.front() : long_data_.front();
  if (o == nullptr) return false;
  if (!send_slice(*o)) return true;
  o->unlink();
  o->done(*o, true);
  return true;
}

void sim_link::await_port() noexcept {
  if (!base::list_hook<sending_tag>::linked()) owner_.sending_.push_back(*this);
}

void sim_link::proceed() {
  if (at_ != phase::open) return;
  if (waiting()) return await_port();
  if (!owner_.muted() || std::exchange(said_farewell_, true)) return;
  ++owner_.fabric_.at(owner_.rank()).so_far.frames;
  owner_.fabric_.transmit(*this, {.kind = frame_kind::leave}, nullptr, 0);
}

bool sim_transport::send_waiting() {
  bool any = false;
  // In turns; a link whose port is not free keeps its place.
  base::intrusive_list<sim_link, sending_tag> later_ones;
  while (sim_link* const link = sending_.pop_front()) {
    if (fabric_.at(rank_).dying) break;
    if (const nanoseconds out_free = link->port_free(); out_free > fabric_.now()) {
      later_ones.push_back(*link);
      fabric_.want_step(rank_, out_free);
      continue;
    }
    any |= link->send_front();
    link->proceed();
  }
  while (sim_link* const link = later_ones.pop_front()) link->await_port();
  return any;
}

// ---- receiving ----

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
  proceed();
}

sim_transport::sim_transport(fabric& f, core::loop& loop, int rank) noexcept
    : transport(loop),
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
  bool any = send_waiting();
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
