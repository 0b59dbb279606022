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

sim_link::sim_link(sim_transport& owner, int peer) noexcept
    : peer_link(owner, peer, phase::idle), owner_(owner) {}

// ---- sending ----

nanoseconds sim_link::port_free() const noexcept {
  fabric& f = owner_.fabric_;
  return f.at(owner_.rank()).out_free[f.between(owner_.rank(), peer_).wire];
}

bool sim_link::submit(outgoing& o) noexcept {
  if (owner_.leaving()) return false;
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
  if (closed()) {
    await_port(f.now());  // to be handed back
    return queue();
  }
  p.cpu_free = std::max(p.cpu_free, f.now()) + f.settings().network.overhead.count();
  if (at_ == phase::idle) f.connect(*this);
  if (at_ != phase::connected) return queue();
  const nanoseconds out_free = port_free();
  const bool is_free = out_free <= p.cpu_free && !f.numbers().happens(f.settings().noise.busy);
  if (!has_queue() && is_free && !is_long) {
    f.transmit(*this, o.head, o.payload, static_cast<std::size_t>(bytes));
    return true;
  }
  await_port(out_free);
  return queue();
}

cancel_result sim_link::cancel(outgoing& o) noexcept {
  if (!o.linked()) return cancel_result::gone;
  fabric& f = owner_.fabric_;
  const port& p = f.at(owner_.rank());
  const bool first = messages_.front() == &o || long_data_.front() == &o;
  const bool goes = first && !p.dying && !p.gone && at_ == phase::connected &&
                    f.numbers().happens(f.settings().noise.unstoppable);
  o.unlink();
  if (!goes) return cancel_result::gone;
  // As on a stream after the frame had begun to leave: what its header has promised is finished.
  return send_slice(o) ? cancel_result::leaves : cancel_result::gone;
}

bool sim_link::send_slice(outgoing& o) noexcept {
  const frame head = next_slice(o.head, o.progress, owner_.fabric_.settings().network.slice);
  const std::uint64_t bytes = payload_bytes(head);
  owner_.fabric_.transmit(*this, head, bytes > 0 ? o.payload + o.progress : nullptr,
                          static_cast<std::size_t>(bytes));
  o.progress += bytes;
  return o.progress >= payload_bytes(o.head);
}

bool sim_link::move() noexcept {
  outgoing* const o = messages_.empty() ? long_data_.front() : messages_.front();
  if (o == nullptr || owner_.fabric_.at(owner_.rank()).dying) return false;
  const bool is_free = port_free() <= owner_.fabric_.now();
  if (is_free && send_slice(*o)) {
    o->unlink();
    o->done(*o, true);
  }
  if (has_queue()) await_port(port_free());
  return is_free;
}

void sim_link::await_port(nanoseconds when) noexcept {
  owner_.activate(*this);
  owner_.fabric_.want_step(owner_.rank(), when);
}

void sim_link::disconnect(bool) noexcept {
  half_way_ = nullptr;
  where_ = destination_buffer{};
}

void sim_link::clear_queues(list& rest) noexcept {
  rest.splice_back(messages_);
  rest.splice_back(long_data_);
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
  if (closed()) return;
  const bool leaves = !p->is_end && p->head.kind == frame_kind::leave;
  if (leaves)
    owner_.fabric_.hang_up(*this, errc::peer_left, owner_.describe(owner_.rank()) + " has finished and left");
  if (leaves || p->is_end) {
    close(leaves ? errc::peer_left : p->why,
          leaves ? owner_.describe(peer_) + " has finished and left" : std::move(p->text));
    return owner_.changed();
  }
  if (owner_.leaving()) return;
  tutti::transport::inbound& up = owner_.up();
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

void sim_link::leave() noexcept {
  if (at_ == phase::idle) drop();
  if (closed()) return;
  where_ = destination_buffer{};
  // Behind everything else.
  (long_data_.empty() ? messages_ : long_data_).push_back(farewell_);
  ++owner_.fabric_.at(owner_.rank()).so_far.frames;
  if (at_ == phase::connected) await_port(owner_.fabric_.now());
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
  if (is_new && leaving_) place->second.drop();
  return place->second;
}

bool sim_transport::has_queue() const noexcept {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& l) { return !l.second.closed() && l.second.has_queue(); });
}

bool sim_transport::any_open() const noexcept {
  return std::any_of(links_.begin(), links_.end(), [](const auto& l) { return !l.second.closed(); });
}

bool sim_transport::poll() noexcept {
  bool any = work_active();
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
    fabric_.hang_up(l, l.farewell_.linked() ? errc::peer_failed : errc::peer_left,
                    describe(rank_) + " has given up waiting for its last messages to be read");
    l.drop();
  }
  fabric_.at(rank_).left = true;
  detach();
}

void sim_transport::cut() noexcept {
  leaving_ = true;
  if (attached_) fabric_.bury(rank_);
  for (auto& [peer, l] : links_) l.cut();
  detach();
}

void sim_transport::detach() noexcept {
  if (!leave_loop()) return;
  fabric_.at(rank_).gone = true;
  leave_timer_.cancel();
}

}  // namespace tutti::sim
