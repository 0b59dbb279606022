// SPDX-License-Identifier: Apache-2.0
#include "sim/fabric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

namespace tutti::sim {

using tutti::transport::cancel_result;
using tutti::transport::destination_buffer;
using tutti::transport::frame;
using tutti::transport::frame_kind;
using tutti::transport::outgoing;
using tutti::transport::redirect_result;

namespace {

nanoseconds later(nanoseconds t, nanoseconds by) noexcept {
  return by > end_of_time - t ? end_of_time : t + by;
}

bool separates(const partition& p, int a, int b) noexcept {
  const auto inside = [&p](int r) { return std::ranges::find(p.ranks, r) != p.ranks.end(); };
  return inside(a) != inside(b);
}

std::string death_of(const std::string& who) {
  return who +
         " closed the connection without taking leave: it died or was killed; its own output and exit code "
         "say why";
}
std::string farewell_of(const std::string& who) { return who + " has finished and left"; }

}  // namespace

core::endpoint_record record_of(const options& o, int rank) {
  core::endpoint_record record;
  record.rank = rank;
  record.host = fmt::format("sim{}", rank / o.ranks_per_host);
  record.pid = 1000 + rank;
  record.host_id = record.host;
  record.cpus = "1";
  return record;
}

fabric::fabric(const options& o, std::function<void(int)> step)
    : options_(o),
      order_(scrambled(o.seed + 1)),
      numbers_(scrambled(o.seed + 2)),
      ports_(static_cast<std::size_t>(o.ranks)),
      step_(std::move(step)) {
  for (const death& d : o.faults.deaths)
    if (d.frames > 0) at(d.rank).dies_at_frame = std::min(at(d.rank).dies_at_frame, d.frames);
}

void fabric::want_step(int rank, nanoseconds when) {
  port& p = at(rank);
  when = std::max({when, now_, p.cpu_free});
  if (p.step_at <= when) return;
  p.step_at = when;
  plan(when, [this, rank] { turn(rank); });
}

void fabric::turn(int rank) {
  port& p = at(rank);
  if (p.step_at != now_) return;  // planned anew meanwhile
  p.step_at = end_of_time;
  if (p.cpu_free > now_) return want_step(rank, p.cpu_free);
  hash_.add(static_cast<std::uint64_t>(now_) * 64 + static_cast<std::uint64_t>(rank));
  step_(rank);
}

fabric::path fabric::between(int a, int b) const noexcept {
  const network& n = options_.network;
  const bool local =
      options_.ranks_per_host > 1 && a / options_.ranks_per_host == b / options_.ranks_per_host;
  const double rate = local ? n.local_bytes_per_second : n.bytes_per_second;
  return {(local ? n.local_latency : n.latency).count(), rate > 0 ? 1e9 / rate : 0, local ? 1 : 0};
}

connection* fabric::find(int a, int b) noexcept {
  const auto found = connections_.find(std::minmax(a, b));
  return found == connections_.end() ? nullptr : &found->second;
}

// ---- sending ----

void fabric::transmit(sim_link& link, frame head, const std::byte* payload, std::size_t bytes) {
  const int from = link.owner_.rank();
  const int to = link.peer_;
  const noise& n = options_.noise;
  connection& c = *find(from, to);
  connection::direction& way = c.from(from);
  const path over = between(from, to);
  port& p = at(from);
  nanoseconds& out_free = p.out_free[over.wire];
  const auto on_wire = static_cast<nanoseconds>(
      std::llround(static_cast<double>(bytes + options_.network.header_bytes) * over.nanoseconds_per_byte));
  const nanoseconds occupies = on_wire + (over.wire == 1 ? 0 : options_.network.gap.count());
  const nanoseconds departs = std::max({p.cpu_free, out_free, now_});
  out_free = departs + occupies;
  nanoseconds arrives = departs + on_wire + over.latency + numbers_.up_to(n.jitter.count());
  if (numbers_.happens(n.stragglers)) arrives += n.straggling.count();

  const std::uint64_t number = ++way.sent;
  hash_.add(static_cast<std::uint64_t>(now_));
  hash_.add(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to));
  hash_.add(static_cast<std::uint64_t>(head.kind) << 56 ^ static_cast<std::uint64_t>(head.context) << 32 ^
            static_cast<std::uint32_t>(head.tag));
  hash_.add(head.length ^ head.transfer_id << 20 ^ head.other_transfer_id << 40);
  hash_.add(std::span(payload, bytes));

  if (const nanoseconds heals = separated_until(from, to, departs); heals != 0) {
    if (heals == end_of_time) return;  // the connection is given up
    arrives = std::max(arrives, later(heals, over.latency));
  }
  if (c.at == connection::phase::ended) return;  // this side does not know it yet
  arrives = std::max(arrives, way.last_arrival + 1);
  way.last_arrival = arrives;

  const packet_ref made = std::make_shared<packet>(packet{.from = from,
                                                          .to = to,
                                                          .head = head,
                                                          .payload = {payload, payload + bytes},
                                                          .number = number,
                                                          .occupies = occupies});
  if (std::ranges::any_of(options_.faults.corruptions, [&](const corruption& f) {
        return f.from == from && f.to == to && f.frame == number;
      })) {
    made->is_end = true;
    made->why = errc::protocol;
    made->text = fmt::format(
        "{} sent bytes that are no frame: is every rank built with the same tutti? The connection "
        "was closed",
        link.owner_.describe(from));
    c.at = connection::phase::ended;
    way.told = true;
    way.cut_from = number + 1;
    tell_end(c, from, errc::peer_failed, death_of(link.owner_.describe(to)));
  } else if (bytes > 1 && numbers_.happens(n.split)) {
    made->in_parts = true;
    way.last_arrival = arrives + 1 + numbers_.up_to(std::max<nanoseconds>(n.jitter.count(), 1000));
    plan(way.last_arrival, [this, made] { at_port(made); });
  }
  plan(arrives, [this, made] { at_port(made); });
}

// ---- connections ----

void fabric::connect(sim_link& link) {
  const int rank = link.owner_.rank();
  connection made;
  std::tie(made.low, made.high) = std::minmax(rank, link.peer_);
  const auto [place, is_new] = connections_.try_emplace({made.low, made.high}, made);
  link.at_ = sim_link::phase::connecting;
  connection& c = place->second;
  if (!is_new && c.at == connection::phase::connecting) return;  // the peer's attempt suffices
  c = made;
  nanoseconds when =
      now_ + options_.network.connecting.count() + numbers_.up_to(options_.noise.jitter.count());
  // Both sides ask for the other's record, the one that connects before it does.
  if (link.owner_.info().peers.find(link.peer_) == nullptr) when += 2 * between(rank, link.peer_).latency;
  for (const auto& [side, far] : {std::pair(rank, link.peer_), std::pair(link.peer_, rank)})
    if (!at(side).gone) at(side).transport->info().peers.learn(record_of(options_, far));
  if (const nanoseconds heals = separated_until(rank, link.peer_, now_); heals != 0)
    when = heals == end_of_time ? now_ + options_.network.silence.count() : later(when, heals - now_);
  plan(when, [this, rank, other = link.peer_] { establish(rank, other); });
}

void fabric::establish(int rank, int other) {
  connection* const c = find(rank, other);
  if (c == nullptr || c->at != connection::phase::connecting) return;
  const bool cut_off = separated_until(rank, other, now_) != 0;
  if (at(rank).gone && at(other).gone) return;
  const int alive = at(rank).gone ? other : rank;
  const int peer = alive == rank ? other : rank;
  sim_transport& mine = *at(alive).transport;
  if (cut_off || at(peer).gone) {
    c->at = connection::phase::ended;
    const auto no_answer = [&](int side) {
      return fmt::format("could not connect to {}: no answer within {} ms", mine.describe(side),
                         options_.network.silence.count() / 1'000'000);
    };
    if (cut_off)
      tell_end(*c, alive, errc::timed_out, no_answer(peer));
    else if (at(peer).left)  // real ranks have this recorded, or were told: world::has_left and meet_unmet
      tell_end(*c, alive, errc::peer_left, farewell_of(mine.describe(peer)));
    else
      tell_end(*c, alive, errc::peer_failed,
               fmt::format("could not connect to {}: it has ended", mine.describe(peer)));
    if (!at(peer).gone && at(peer).transport->at(alive).at_ == sim_link::phase::connecting)
      tell_end(*c, peer, errc::timed_out, no_answer(alive));
    return;
  }
  c->at = connection::phase::open;
  for (const auto& [side, far] : {std::pair(rank, other), std::pair(other, rank)}) {
    sim_link& link = at(side).transport->at(far);
    ++at(side).so_far.connections;
    if (link.closed()) {
      // It has been told to leave before.
      tell_end(*c, far, errc::peer_left, farewell_of(mine.describe(side)));
      continue;
    }
    link.at_ = sim_link::phase::connected;
    link.await_port(now_);
  }
}

void fabric::tell_end(connection& c, int told, errc why, std::string text) {
  const int from = told == c.low ? c.high : c.low;
  connection::direction& way = c.from(from);
  if (std::exchange(way.told, true) || at(told).gone) return;
  const packet_ref p = std::make_shared<packet>(
      packet{.from = from, .to = told, .is_end = true, .why = why, .text = std::move(text)});
  way.last_arrival = std::max(now_ + between(c.low, c.high).latency, way.last_arrival) + 1;
  plan(way.last_arrival, [this, p] { at_port(p); });
}

void fabric::hang_up(sim_link& link, errc why, std::string text) {
  connection* const c = find(link.owner_.rank(), link.peer_);
  if (c == nullptr || c->at == connection::phase::ended) return;
  c->at = connection::phase::ended;
  tell_end(*c, link.peer_, why, std::move(text));
}

void fabric::bury(int rank) {
  port& p = at(rank);
  if (std::exchange(p.gone, true) || p.transport == nullptr) return;
  for (const transport::peer_link* const l : p.transport->live_) {
    connection* const c = find(rank, l->peer());
    if (c == nullptr || c->at != connection::phase::open) continue;  // attempts find no listener
    c->at = connection::phase::ended;
    tell_end(*c, l->peer(), errc::peer_failed, death_of(p.transport->describe(rank)));
  }
}

void fabric::break_off(connection& c, const std::string& text, bool loses) {
  const bool was_open = c.at == connection::phase::open;
  c.at = connection::phase::ended;
  for (const int side : {c.low, c.high}) {
    connection::direction& way = c.from(side);
    if (loses && was_open)
      way.cut_from = std::min(way.cut_from, way.delivered + 1 + numbers_.below(way.sent - way.delivered + 1));
    const int other = side == c.low ? c.high : c.low;
    if (at(other).gone) continue;
    tell_end(c, other, errc::peer_failed,
             fmt::format("the connection to {} broke ({}): its host or the network between has failed",
                         at(other).transport->describe(side), text));
  }
}

void fabric::disconnect(const disconnection& d) {
  connection* const c = find(d.a, d.b);
  if (c != nullptr && c->at == connection::phase::open) break_off(*c, "reset", d.loses);
}

void fabric::give_up(const partition& p) {
  for (auto& [ranks, c] : connections_)
    if (separates(p, c.low, c.high) && c.at == connection::phase::open)
      break_off(c, fmt::format("nothing came for {} ms", options_.network.silence.count() / 1'000'000), true);
}

nanoseconds fabric::separated_until(int a, int b, nanoseconds when) const noexcept {
  nanoseconds until = 0;
  for (const partition& p : options_.faults.partitions) {
    if (when < p.from.count() || when >= p.until.count() || !separates(p, a, b)) continue;
    const bool given_up = p.until == never || p.until - p.from > options_.network.silence;
    until = std::max(until, given_up ? end_of_time : static_cast<nanoseconds>(p.until.count()));
  }
  return until;
}

// ---- arriving ----

void fabric::at_port(const packet_ref& p) {
  port& to = at(p->to);
  if (to.gone) return;
  nanoseconds& in_free = to.in_free[between(p->from, p->to).wire];
  // Never two at once: the first through the port stays first.
  const nanoseconds through = std::max(now_, in_free + std::max<nanoseconds>(p->occupies, 1));
  in_free = through;
  p->occupies = 0;  // the rest of a frame in parts takes no more time
  if (through == now_) return arrived(p);
  plan(through, [this, p] { arrived(p); });
}

void fabric::arrived(const packet_ref& p) {
  port& to = at(p->to);
  if (to.gone) return;
  if (!p->is_end) {
    connection::direction& way = find(p->from, p->to)->from(p->from);
    if (p->number >= way.cut_from) return;
    way.delivered = std::max(way.delivered, p->number);
  }
  to.inbox.push_back(p);
  if (!to.delivering) take_next(p->to);
}

void fabric::take_next(int rank) {
  port& p = at(rank);
  if (p.inbox.empty() || p.gone) return;
  p.delivering = true;
  p.cpu_free = std::max(now_, p.cpu_free) + options_.network.overhead.count();
  plan(p.cpu_free, [this, rank] { deliver(rank); });
}

void fabric::deliver(int rank) {
  port& p = at(rank);
  if (p.gone) return;
  if (p.cpu_free > now_) return plan(p.cpu_free, [this, rank] { deliver(rank); });  // it was stalled
  p.may_deliver = true;
  step_(rank);
  p.may_deliver = p.delivering = false;
  take_next(rank);
}

// ---- links ----

sim_link::sim_link(sim_transport& owner, int peer) noexcept
    : peer_link(owner, peer, phase::idle), owner_(owner) {}

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
    (is_long ? data_ : messages_).push_back(o);
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
  const bool first = messages_.front() == &o || data_.front() == &o;
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
  outgoing* const o = messages_.empty() ? data_.front() : messages_.front();
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

redirect_result sim_link::redirect_destination(void* owner, const destination_buffer& instead) noexcept {
  if (half_way_ == nullptr || where_.owner != owner) return redirect_result::none;
  move_destination(where_, half_way_->come, instead, half_way_->head);
  return redirect_result::moved;
}

bool sim_link::sends_eagerly(const void*, std::size_t bytes) const noexcept {
  return bytes <= owner_.fabric_.settings().network.eager_limit;
}

void sim_link::receive(const packet_ref& p) noexcept {
  if (closed()) return;
  if (p->is_end) return close(p->why, std::move(p->text));
  if (p->head.kind == frame_kind::leave) {
    owner_.fabric_.hang_up(*this, errc::peer_left, farewell_of(owner_.describe(owner_.rank())));
    return close(errc::peer_left, farewell_of(owner_.describe(peer_)));
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
  (data_.empty() ? messages_ : data_).push_back(farewell_);
  ++owner_.fabric_.at(owner_.rank()).so_far.frames;
  if (at_ == phase::connected) await_port(owner_.fabric_.now());
}

// ---- a rank's transport ----

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

task<> sim_transport::leave(core::time_point deadline) {
  if (!attached_) co_return;
  leaving_ = true;
  for (tutti::transport::peer_link* const l : live_) l->leave();
  core::duration next_pause = std::chrono::microseconds(10);
  while (attached_ && !has_left() && loop_.engine().platform().now() < deadline) {
    co_await core::pause(loop_, next_pause);
    next_pause = std::min<core::duration>(2 * next_pause, std::chrono::milliseconds(1));
  }
  if (!attached_) co_return;
  for (tutti::transport::peer_link* const each : live_) {
    if (each->closed()) continue;
    auto& l = static_cast<sim_link&>(*each);
    fabric_.hang_up(l, l.farewell_.linked() ? errc::peer_failed : errc::peer_left,
                    describe(rank_) + " has given up waiting for its last messages to be read");
    l.drop();
  }
  fabric_.at(rank_).left = fabric_.at(rank_).gone = true;
  leave_loop();
}

void sim_transport::cut() noexcept {
  if (attached_) fabric_.bury(rank_);
  transport::cut();
}

}  // namespace tutti::sim
