// SPDX-License-Identifier: Apache-2.0
#include "sim/fabric.hpp"

#include "sim/sim_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace tutti::sim {

using tutti::transport::frame;

namespace {

nanoseconds later(nanoseconds t, nanoseconds by) noexcept {
  return by > end_of_time - t ? end_of_time : t + by;
}

bool separates(const partition& p, int a, int b) noexcept {
  const auto inside = [&p](int r) { return std::find(p.ranks.begin(), p.ranks.end(), r) != p.ranks.end(); };
  return inside(a) != inside(b);
}

std::string death_of(const std::string& who) {
  return who +
         " closed the connection without taking leave: it died or was killed; its own output and exit code "
         "say why";
}

}  // namespace

fabric::fabric(const options& o, std::function<void(int)> step)
    : options_(o),
      order_(scrambled(o.seed + 1)),
      numbers_(scrambled(o.seed + 2)),
      ports_(static_cast<std::size_t>(o.ranks)),
      step_(std::move(step)) {
  for (const death& d : o.faults.deaths)
    if (d.frames > 0) at(d.rank).dies_at_frame = d.frames;
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
  if (is_corrupted(from, to, number)) {
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
      tell_end(*c, alive, errc::peer_left, mine.describe(peer) + " has finished and left");
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
      tell_end(*c, far, errc::peer_left, fmt::format("{} has finished and left", mine.describe(side)));
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
  for (const auto& [peer, link] : p.transport->links_) {
    connection* const c = find(rank, peer);
    if (c == nullptr || c->at != connection::phase::open) continue;  // attempts find no listener
    c->at = connection::phase::ended;
    tell_end(*c, peer, errc::peer_failed, death_of(p.transport->describe(rank)));
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

bool fabric::is_corrupted(int from, int to, std::uint64_t number) const noexcept {
  return std::any_of(options_.faults.corruptions.begin(), options_.faults.corruptions.end(),
                     [&](const corruption& c) { return c.from == from && c.to == to && c.frame == number; });
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

// ---- time of a rank ----

namespace {
// Long after the clock's zero, which has a meaning of its own.
constexpr core::time_point beginning{std::chrono::hours(24 * 365)};
}  // namespace

rank_platform::rank_platform(fabric& f, int rank)
    : fabric_(f), numbers_(scrambled(f.settings().seed * 0x10001 + static_cast<std::uint64_t>(rank) + 3)) {
  for (const skew& s : f.settings().faults.skews) {
    if (s.rank != rank) continue;
    ahead_ += s.ahead.count();
    drift_ += s.drift_ppm * 1e-6;
  }
}

core::time_point rank_platform::local(nanoseconds t) const noexcept {
  return beginning +
         std::chrono::nanoseconds(t + ahead_ + static_cast<nanoseconds>(static_cast<double>(t) * drift_));
}

nanoseconds rank_platform::moment_of(core::time_point t) const noexcept {
  if (t == core::time_point::max()) return end_of_time;
  const nanoseconds wanted =
      std::chrono::duration_cast<std::chrono::nanoseconds>(t - beginning).count() - ahead_;
  if (drift_ == 0) return wanted;
  auto guess = static_cast<nanoseconds>(static_cast<double>(wanted) / (1 + drift_));
  while (local(guess) < t) ++guess;
  return guess;
}

}  // namespace tutti::sim
