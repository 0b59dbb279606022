// SPDX-License-Identifier: Apache-2.0
#include "p2p/endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::p2p {

using transport::destination_buffer;
using transport::frame;
using transport::frame_kind;

endpoint::endpoint(core::engine& engine, router& routes, int rank, int size, transfer_id_table transfer_ids)
    : engine_(engine),
      routes_(routes),
      peers_(routes, rank, size),
      contexts_(peers_),
      control_(routes, peers_, contexts_),
      transfer_ids_(std::move(transfer_ids)) {}

endpoint::~endpoint() {
  for (const auto& u : unexpected_nodes_) delete[] u->data;
}

endpoint_usage endpoint::usage() const noexcept {
  endpoint_usage now;
  now.posted = matcher_.posted_count();
  now.unexpected = unexpected_nodes_.size() - free_unexpected_.size();
  now.transfer_ids = transfer_ids_.in_use();
  now.controls = peers_.controls_in_use();
  return now;
}

void endpoint::open_context(std::uint32_t context, context_owner& owner) noexcept {
  contexts_.open(context, owner);
  matcher_.open_context(context, peers_.size());
}

void endpoint::close_context(std::uint32_t context) noexcept {
  const std::string why = "the communicator was closed";
  fail_posted(context, errc::shut_down, why);
  end_probes([context](const probe& p) { return p.wanted.context == context; }, errc::shut_down, why);
  drop_unexpected(context);
  matcher_.close_context(context);
  contexts_.close(context);
}

void endpoint::renounce_context(std::uint32_t context) noexcept {
  drop_unexpected(context);
  contexts_.close(context);
}

void endpoint::drop_unexpected(std::uint32_t context) noexcept {
  matcher_.take_unexpected(context, [this](match::unexpected_message& m) {
    auto& u = static_cast<unexpected&>(m);
    if (u.transfer_id != 0) stop_arriving(u);
    // Otherwise the link still writes to it: end(), or the link's end, retires it.
    if (u.complete) retire(u);
  });
}

bool endpoint::start(send& s, std::uint32_t context, int peer, int tag, const void* data, std::size_t bytes,
                     const fingerprint& part_of) noexcept {
  ++counters_.sends;
  s.peer = peer;
  s.through = this;
  s.data = static_cast<const std::byte*>(data);
  s.bytes = bytes;
  if (contexts_.gone(context, peer)) {
    const departure why = contexts_.departure_of(context, peer);
    s.set_failure(why.why, why.text);
    s.at = send::phase::done;
    return true;
  }
  peer_state& other = peers_[peer];
  other.in_touch = true;
  transport::link& link = peers_.link_to(peer);
  const bool short_enough = link.sends_eagerly(data, bytes);
  if (!short_enough || other.eager_out + cost_of(bytes) > eager_window)
    s.transfer_id = transfer_ids_.insert(s);
  other.link = &link;
  ++other.counters.sends;
  other.counters.bytes_sent += bytes;
  s.head = frame{};
  s.head.context = context;
  s.head.tag = tag;
  s.head.length = bytes;
  s.head.fingerprint = part_of;
  s.payload = s.data;
  s.progress = 0;
  s.shown = 0;
  s.done = &sent;
  if (s.transfer_id == 0) {
    ++counters_.eager;
    other.eager_out += cost_of(bytes);
    s.head.kind = frame_kind::eager;
    s.at = send::phase::queued;
    if (link.submit(s)) {
      s.at = send::phase::done;
      return true;
    }
  } else {
    ++counters_.rendezvous;
    if (short_enough) ++other.counters.without_credit;
    s.head.kind = frame_kind::rts;
    s.head.transfer_id = s.transfer_id;
    s.at = send::phase::rts_sent;
    link.submit(s);
  }
  engine_.begin_wait();
  return false;
}

bool endpoint::send_now(std::uint32_t context, int peer, int tag, const void* data,
                        std::size_t bytes) noexcept {
  peer_state& other = peers_[peer];
  transport::link* const link = other.link;
  if (link == nullptr || contexts_.any_closed_by_peers() || !link->sends_eagerly(data, bytes) ||
      other.eager_out + cost_of(bytes) > eager_window)
    return false;
  frame head;
  head.context = context;
  head.tag = tag;
  head.length = bytes;
  if (!link->send_now(head, static_cast<const std::byte*>(data))) return false;
  ++counters_.sends;
  ++counters_.eager;
  ++other.counters.sends;
  other.counters.bytes_sent += bytes;
  other.eager_out += cost_of(bytes);
  return true;
}

// The link has released a send's frame.
void endpoint::sent(transport::outgoing& o, bool ok) noexcept {
  auto& s = static_cast<send&>(o);
  endpoint& self = *s.through;
  if (!ok) {
    if (s.at != send::phase::queued || s.transfer_id != 0) return;
    // closed() follows with the reason, unless this rank itself broke the connection.
    const peer_state& other = self.peers_[s.peer];
    if (other.gone.why == errc::success) {
      self.returned_.push_back(s);
    } else {
      self.fail(s, other.gone.why, other.gone.text);
    }
    return;
  }
  if (s.at == send::phase::queued || s.at == send::phase::streaming) self.finish(s);
}

void endpoint::end_cts(int peer, const frame& head) noexcept {
  send* s = transfer_ids_.find_send(head.transfer_id);
  if (s == nullptr || s->peer != peer || s->at != send::phase::rts_sent) {
    // Taken back meanwhile: the receiver must stop waiting for it.
    return peers_.answer(peer, frame_kind::cancel, head.context, head.transfer_id, head.other_transfer_id);
  }
  transport::link& link = peers_.link_to(peer);
  link.cancel(*s);  // the rts frame: the receiver asks for the data, and no longer reads them itself
  const std::uint32_t context = s->head.context;
  s->head = frame{};
  s->head.kind = frame_kind::data;
  s->head.context = context;
  s->head.length = s->bytes;
  s->head.transfer_id = head.other_transfer_id;
  s->payload = s->data;
  s->progress = 0;
  s->at = send::phase::streaming;
  if (link.submit(*s)) finish(*s);
}

// The receiver does not want the announced message, or has read it.
void endpoint::end_answer(int peer, const frame& head) noexcept {
  send* s = transfer_ids_.find_send(head.transfer_id);
  if (s == nullptr || s->peer != peer || s->at != send::phase::rts_sent) return;
  peers_.link_to(peer).cancel(*s);
  finish(*s);
}

void endpoint::closed_by(std::uint32_t context, int peer) noexcept {
  if (!contexts_.close_by(context, peer)) return;
  const departure why = contexts_.departure_of(context, peer);
  fail_posted_from(context, peer, why);
  const bool nobody = contexts_.nobody_left(context);
  if (nobody) fail_posted_from(context, match::any_source, why);
  end_probes(
      [&](const probe& p) {
        return p.wanted.context == context && (p.wanted.source == peer || (p.wanted.source < 0 && nobody));
      },
      why.why, why.text);
  transfer_ids_.for_each([&](const transfer_id_table::named& is) {
    send* const s = is.sending;
    if (s != nullptr && s->peer == peer && s->head.context == context && s->at == send::phase::rts_sent)
      fail(*s, why.why, why.text);
  });
}

void endpoint::end(int peer, const frame& head, const destination_buffer& where) noexcept {
  peer_state& from = peers_[peer];
  if (from.lost && where.owner == nullptr) [[unlikely]]
    return;
  switch (head.kind) {
    case frame_kind::eager:
      from.arriving = nullptr;
      ++from.counters.receives;
      from.counters.bytes_received += head.length;
      end_eager(peer, head, where);
      break;
    case frame_kind::rts:
      ++from.counters.receives;
      end_rts(peer, head);
      break;
    case frame_kind::cts:
      end_cts(peer, head);
      break;
    case frame_kind::data:
      from.counters.bytes_received += head.length;
      end_data(head, where);
      break;
    case frame_kind::cancel:
      end_cancel(peer, head);
      break;
    case frame_kind::fail:
    case frame_kind::agree:
      end_control(peer, head, where);
      break;
    case frame_kind::refuse:
    case frame_kind::fin:
      end_answer(peer, head);
      break;
    case frame_kind::credit:
      peers_.take_credit(peer, head.length);
      break;
    case frame_kind::notice:
    case frame_kind::ask:
    case frame_kind::tell:
      control_.received(peer, head, {});
      break;
    case frame_kind::leave:      // the link reports it by closed()
    case frame_kind::heartbeat:  // between the links
    case frame_kind::alive:
      break;
  }
}

// The payload is in memory of an unexpected message; null: there was none for it.
void endpoint::end_control(int peer, const frame& head, const destination_buffer& where) noexcept {
  auto* const u = static_cast<unexpected*>(static_cast<destination_owner*>(where.owner));
  if (u == nullptr && head.kind == frame_kind::agree) return peers_.lose(peer, "what it says of who is left");
  control_.received(
      peer, head,
      u == nullptr ? std::span<const std::byte>() : std::span<const std::byte>(u->data, head.length));
  if (u != nullptr) recycle(*u);
}

transport::outgoing* endpoint::returned_of(int peer) noexcept {
  transport::outgoing* o = returned_.front();
  while (o != nullptr && static_cast<send*>(o)->peer != peer) o = returned_.after(*o);
  return o;
}

void endpoint::closed(int peer, errc code, std::string text) noexcept {
  if (!peers_.close(peer, code, std::move(text))) return;
  const departure& why = peers_[peer].gone;
  if (why.why == errc::protocol) ++counters_.corrupt_frames;
  // Messages that had come whole can still be received; partial ones cannot.
  drop_arriving(peer);
  while (transport::outgoing* o = returned_of(peer)) {
    o->unlink();
    fail(*static_cast<send*>(o), why.why, why.text);
  }
  // A leaving rank has ended its sends. If nothing has come of a receive's message, that was taken back, and
  // the answer that says so will not come: the receive waits again.
  const auto goes_on = [&why](const receive& r) {
    return why.why == errc::peer_left && r.received == 0 && r.expected == fingerprint{};
  };
  transfer_ids_.for_each([&](const transfer_id_table::named& is) {
    if (is.sending != nullptr && is.sending->peer == peer) fail(*is.sending, why.why, why.text);
    if (is.receiving != nullptr && is.receiving->peer == peer && !goes_on(*is.receiving))
      fail(*is.receiving, why.why, why.text);
    if (is.kept != nullptr && is.kept->peer == peer) discard(*is.kept);
  });
  for (unexpected* u = unmatched_rts_.front(); u != nullptr;) {
    unexpected* next = unmatched_rts_.after(*u);
    if (u->peer == peer) discard(*u);
    u = next;
  }
  transfer_ids_.for_each([&](const transfer_id_table::named& is) {
    if (is.receiving != nullptr && is.receiving->peer == peer) wait_again(*is.receiving);
  });
  // A receive from any source goes on while a member that may send is left; a member's death is reported to
  // it at once.
  const auto ends_any = [&](std::uint32_t context, const context_owner& owner) {
    return owner.has_member(peer) && (why.why != errc::peer_left || contexts_.nobody_left(context));
  };
  contexts_.for_each([&](std::uint32_t context, const context_owner& owner) {
    fail_posted_from(context, peer, why);
    if (!ends_any(context, owner)) return;
    const bool told = fail_posted_from(context, match::any_source, why) > 0;
    if (!told && why.why != errc::peer_left) contexts_.report_failed(context, peer);
  });
  end_probes(
      [&](const probe& p) {
        if (p.wanted.source >= 0) return p.wanted.source == peer;
        const context_owner* const owner = contexts_.owner_of(p.wanted.context);
        return owner != nullptr && ends_any(p.wanted.context, *owner);
      },
      why.why, why.text);
  // Their reactions may close some of them.
  std::vector<context_owner*> owners;
  contexts_.for_each([&owners](std::uint32_t, context_owner& owner) { owners.push_back(&owner); });
  for (context_owner* owner : owners) owner->peer_closed(peer, why.why, why.text);
  routes_.peer_closed(peer);
}

}  // namespace tutti::p2p
