// SPDX-License-Identifier: Apache-2.0
#include "p2p/endpoint.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace tutti::p2p {

endpoint::endpoint(core::progress_engine& engine, router& routes, int rank, int size,
                   std::uint32_t first_generation)
    : routes_(routes),
      peers_(routes, rank, size),
      contexts_(peers_),
      control_(routes, peers_, contexts_),
      sends_(engine, peers_, contexts_, first_generation),
      receive_ids_(first_generation),
      unexpected_(peers_, matcher_, receive_ids_, probes_),
      probes_(engine, contexts_, matcher_),
      receives_(engine, peers_, contexts_, control_, matcher_, receive_ids_, unexpected_) {}

endpoint_counters endpoint::counters() const noexcept {
  endpoint_counters now{sends_.counters(), receives_.counters()};
  peers_.for_each([&now](int, const peer_state& p) {
    if (p.gone.code == errc::protocol) ++now.corrupt_frames;
  });
  return now;
}

endpoint_usage endpoint::usage() const noexcept {
  endpoint_usage now;
  now.posted = matcher_.posted_count();
  now.unexpected = unexpected_.in_use();
  now.transfer_ids = sends_.ids_in_use() + receive_ids_.in_use();
  now.controls = peers_.controls_in_use();
  return now;
}

void endpoint::open_context(std::uint32_t context, context_owner& owner) noexcept {
  contexts_.open(context, owner);
  matcher_.open_context(context, peers_.size());
  // Those that came before had no owner to compare them.
  std::vector<int> outsiders;
  matcher_.visit_unexpected(context, [&](const match::unexpected_message& m) {
    const auto& early = static_cast<const unexpected&>(m);
    if (!owner.has_member(early.peer) && std::ranges::find(outsiders, early.peer) == outsiders.end())
      outsiders.push_back(early.peer);
    contexts_.admits(early.peer, early.head);
  });
  for (const int peer : outsiders) {
    unexpected_.drop(context, peer);
    control_.turn_away(peer, context);
  }
}

void endpoint::set_taker(std::uint32_t context, message_taker* taker) noexcept {
  contexts_.exchange_taker(context, taker);
  if (taker == nullptr) return;
  matcher_.take_unexpected(context, [&](match::unexpected_message& m) {
    auto& u = static_cast<unexpected&>(m);
    u.held = true;
    taker->take(u);
  });
}

void endpoint::close_context(std::uint32_t context) noexcept {
  if (message_taker* const taker = contexts_.exchange_taker(context, nullptr)) taker->context_closes();
  const departure why{errc::shut_down, "the communicator was closed"};
  for (int source = 0; source < peers_.size(); ++source) receives_.fail_posted(context, source, why);
  receives_.fail_posted(context, match::any_source, why);
  probes_.fail_if([context](const probe& p) { return p.wanted.context == context; }, why);
  unexpected_.drop(context);
  matcher_.close_context(context);
  contexts_.close(context);
}

void endpoint::renounce_context(std::uint32_t context) noexcept {
  unexpected_.drop(context);
  contexts_.close(context);
}

void endpoint::closed_by(std::uint32_t context, int peer) noexcept {
  if (!contexts_.close_by(context, peer)) return;
  const departure why = contexts_.departure_of(context, peer);
  receives_.fail_posted(context, peer, why);
  const bool nobody = contexts_.nobody_left(context);
  if (nobody) receives_.fail_posted(context, match::any_source, why);
  probes_.fail_if(
      [&](const probe& p) {
        return p.wanted.context == context && (p.wanted.source == peer || (p.wanted.source < 0 && nobody));
      },
      why);
  sends_.closed_by(context, peer, why);
}

destination_buffer endpoint::begin(int peer, const frame& head) noexcept {
  peer_state& from = peers_[peer];
  from.in_touch = true;
  from.heard = true;
  if (from.lost) [[unlikely]]
    return {};
  switch (head.kind) {
    case frame_kind::eager:
      return receives_.begin_eager(peer, head);
    case frame_kind::data:
      return receives_.begin_data(peer, head);
    case frame_kind::fail:
    case frame_kind::agree: {
      unexpected* const u = unexpected_.memory_of(head.length);
      if (u == nullptr) return {};
      return {u->data, head.length, static_cast<destination_owner*>(u)};
    }
    default:
      return {};
  }
}

void endpoint::deliver(int peer, const frame& head, const std::byte* payload) noexcept {
  if (head.kind == frame_kind::eager) return receives_.deliver_eager(peer, head, payload);
  inbound::deliver(peer, head, payload);
}

void endpoint::end(int peer, const frame& head, const destination_buffer& where) noexcept {
  if (where.owner == nullptr && peers_[peer].lost) return;
  switch (head.kind) {
    case frame_kind::eager:
      return receives_.end_eager(peer, head, where);
    case frame_kind::rts:
      return receives_.end_rts(peer, head);
    case frame_kind::cts:
      return sends_.end_cts(peer, head);
    case frame_kind::data:
      return receives_.end_data(peer, head, where);
    case frame_kind::cancel:
      return receives_.end_cancel(peer, head);
    case frame_kind::fail:
    case frame_kind::agree:
      return end_control(peer, head, where);
    case frame_kind::refuse:
    case frame_kind::fin:
      return sends_.end_answer(peer, head);
    case frame_kind::credit:
      return peers_.take_credit(peer, head.length);
    default:
      control_.received(peer, head, {});
  }
}

// The payload is in memory of an unexpected message; null: there was none for it.
void endpoint::end_control(int peer, const frame& head, const destination_buffer& where) noexcept {
  auto* const u = static_cast<unexpected*>(static_cast<destination_owner*>(where.owner));
  if (u == nullptr && head.kind == frame_kind::agree) return peers_.lose(peer, "what it says of who is left");
  std::span<const std::byte> payload;
  if (u != nullptr) payload = {u->data, head.length};
  control_.received(peer, head, payload);
  if (u != nullptr) unexpected_.recycle(*u);
}

void endpoint::released(void* owner) noexcept {
  auto& old = *static_cast<destination_owner*>(owner);
  if (old.is == destination_owner::kind::receive) return receives_.released(static_cast<receive&>(old));
  unexpected_.released(static_cast<unexpected&>(old));
}

void endpoint::closed(int peer, errc code, std::string text) noexcept {
  if (!peers_.close(peer, code, std::move(text))) return;
  const departure& why = peers_[peer].gone;
  sends_.peer_closed(peer);
  receives_.peer_closed(peer);
  // A receive from any source goes on while a member that may send is left; a member's death is reported to
  // it at once.
  const auto ends_any = [&](std::uint32_t context, const context_owner& owner) {
    return owner.has_member(peer) && (why.code != errc::peer_left || contexts_.nobody_left(context));
  };
  contexts_.for_each([&](std::uint32_t context, const context_owner& owner) {
    receives_.fail_posted(context, peer, why);
    if (!ends_any(context, owner)) return;
    const bool told = receives_.fail_posted(context, match::any_source, why);
    if (!told && why.code != errc::peer_left) contexts_.report_failed(context, peer);
  });
  probes_.fail_if(
      [&](const probe& p) {
        if (p.wanted.source >= 0) return p.wanted.source == peer;
        const context_owner* const owner = contexts_.owner_of(p.wanted.context);
        return owner != nullptr && ends_any(p.wanted.context, *owner);
      },
      why);
  // Their reactions may close some of them.
  std::vector<context_owner*> owners;
  contexts_.for_each([&owners](std::uint32_t, context_owner& owner) { owners.push_back(&owner); });
  for (context_owner* owner : owners) owner->peer_closed(peer, why.code, why.text);
  routes_.peer_closed(peer);
}

// ---- what this rank waits for: derived from transfers in flight, so that messages pay nothing for it ----

void endpoint::mark_waited_for(std::vector<waits>& by_peer) noexcept {
  const auto mark = [&by_peer](int peer, waits how) {
    if (peer < 0 || static_cast<std::size_t>(peer) >= by_peer.size()) return;
    waits& w = by_peer[static_cast<std::size_t>(peer)];
    w = std::max(w, how);
  };
  const auto mark_source = [&](int source, const context_owner& owner) {
    if (source >= 0) return mark(source, waits::for_it);
    for (int p = 0; p < peers_.size(); ++p)
      if (owner.has_member(p)) mark(p, waits::for_any);
  };
  contexts_.for_each([&](std::uint32_t context, const context_owner& owner) {
    matcher_.visit_posted(context,
                          [&](const match::posted_receive& r) { mark(r.wanted.source, waits::for_it); });
    if (matcher_.expects_any(context)) mark_source(any_source, owner);
  });
  probes_.for_each([&](const probe& p) {
    const context_owner* const owner = contexts_.owner_of(p.wanted.context);
    if (owner != nullptr) mark_source(p.wanted.source, *owner);
  });
  sends_.for_each([&](const send& s) { mark(s.peer, waits::for_it); });
  receive_ids_.for_each([&](const destination_owner& owner) {
    if (owner.is == destination_owner::kind::receive) mark(owner.peer, waits::for_it);
  });
  receives_.for_each_draining([&](const receive& r) { mark(r.peer, waits::for_it); });
  peers_.for_each([&mark](int peer, const peer_state& p) {
    if (p.arriving != nullptr) mark(peer, waits::for_it);
  });
}

void endpoint::give_notices(std::uint32_t context, std::uint32_t sequence,
                            const fingerprint& part_of) noexcept {
  int last = rank();  // they are visited by source
  matcher_.visit_posted(context, [&](const match::posted_receive& r) {
    if (r.wanted.tag != static_cast<std::int32_t>(sequence) || r.wanted.source == rank()) return;
    if (r.wanted.source == last) return;
    last = r.wanted.source;
    control_.send(context, last, notice_message{sequence, part_of});
  });
}

int endpoint::waits_for(std::uint32_t context, std::uint32_t sequence) const noexcept {
  int found = -1;
  matcher_.visit_posted(context, [&](const match::posted_receive& r) {
    if (found < 0 && r.wanted.tag == static_cast<std::int32_t>(sequence) && r.wanted.source != rank())
      found = r.wanted.source;
  });
  return found;
}

bool endpoint::waiting_message(std::uint32_t context, int source, status& found) noexcept {
  const match::unexpected_message* m = matcher_.find(match::envelope{context, source, any_tag});
  if (m == nullptr) m = matcher_.find_outside(context, source);
  if (m == nullptr) return false;
  const auto& u = static_cast<const unexpected&>(*m);
  found = status{u.peer, u.head.tag, u.head.length};
  return true;
}

}  // namespace tutti::p2p
