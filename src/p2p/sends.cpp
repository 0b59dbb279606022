// SPDX-License-Identifier: Apache-2.0
#include "p2p/sends.hpp"

namespace tutti::p2p {

bool sends::start(send& s, std::uint32_t context, int peer, int tag, const void* data, std::size_t bytes,
                  const fingerprint& part_of) noexcept {
  ++counters_.sends;
  s.peer = peer;
  s.through = this;
  s.data = static_cast<const std::byte*>(data);
  s.bytes = bytes;
  if (contexts_.gone(context, peer)) {
    const departure why = contexts_.departure_of(context, peer);
    s.set_failure(why.code, why.text);
    s.at = send::phase::done;
    return true;
  }
  peer_state& other = peers_[peer];
  other.in_touch = true;
  if (other.link == nullptr) other.link = &peers_.link_to(peer);
  transport::link& link = *other.link;
  const bool short_enough = link.sends_eagerly(data, bytes);
  if (!short_enough || other.eager_out + cost_of(bytes) > eager_window) s.transfer_id = ids_.insert(s);
  ++other.counters.sends;
  other.counters.bytes_sent += bytes;
  s.head = {
      .context = context, .tag = tag, .length = bytes, .transfer_id = s.transfer_id, .fingerprint = part_of};
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
    s.transfer_id = ids_.insert(s);  // of this side only
  } else {
    ++counters_.rendezvous;
    if (short_enough) ++other.counters.without_credit;
    s.head.kind = frame_kind::rts;
    s.at = send::phase::rts_sent;
    link.submit(s);
  }
  engine_.begin_wait();
  return false;
}

bool sends::send_now(std::uint32_t context, int peer, int tag, const void* data, std::size_t bytes) noexcept {
  peer_state& other = peers_[peer];
  transport::link* const link = other.link;
  if (link == nullptr || contexts_.any_closed_by_peers() || !link->sends_eagerly(data, bytes) ||
      other.eager_out + cost_of(bytes) > eager_window)
    return false;
  const frame head{.context = context, .tag = tag, .length = bytes};
  if (!link->send_now(head, static_cast<const std::byte*>(data))) return false;
  ++counters_.sends;
  ++counters_.eager;
  ++other.counters.sends;
  other.counters.bytes_sent += bytes;
  other.eager_out += cost_of(bytes);
  return true;
}

// The link has released a send's frame.
void sends::sent(transport::outgoing& o, bool ok) noexcept {
  auto& s = static_cast<send&>(o);
  if (s.at == send::phase::draining) {
    if (s.through->end_streaming(s, ok) && given_up(s.failure())) s.set_failure(errc::success, {});
    return s.through->finish(s);
  }
  // Otherwise closed() follows with the reason, unless this rank itself broke the connection.
  if (ok && (s.at == send::phase::queued || s.at == send::phase::streaming)) s.through->finish(s);
}

void sends::end_cts(int peer, const frame& head) noexcept {
  send* s = ids_.find(head.transfer_id);
  if (s == nullptr || s->peer != peer || s->at != send::phase::rts_sent) {
    // Taken back meanwhile: the receiver must stop waiting for it.
    return peers_.answer(peer, frame_kind::cancel, head.context, head.transfer_id, head.other_transfer_id);
  }
  transport::link& link = peers_.link_to(peer);
  link.cancel(*s);  // the rts frame: the receiver asks for the data, and no longer reads them itself
  s->head = {.kind = frame_kind::data,
             .context = s->head.context,
             .length = s->bytes,
             .transfer_id = head.other_transfer_id};
  s->payload = s->data;
  s->progress = 0;
  s->at = send::phase::streaming;
  if (link.submit(*s)) finish(*s);
}

void sends::end_answer(int peer, const frame& head) noexcept {
  send* s = ids_.find(head.transfer_id);
  if (s == nullptr || s->peer != peer || s->at != send::phase::rts_sent) return;
  peers_.link_to(peer).cancel(*s);
  finish(*s);
}

cancel_result sends::take_back(send& s) noexcept {
  if (s.at == send::phase::draining) return cancel_result::drains;
  bool arrives = false;
  if (!peers_.gone(s.peer)) {
    const bool in_link = static_cast<base::list_hook<transport::outgoing_tag>&>(s).linked();
    const cancel_result outcome = peers_.link_to(s.peer).cancel(s);
    const bool leaves = outcome == cancel_result::leaves;
    const auto cancel = [&](std::uint64_t other_transfer_id) {
      peers_.answer(s.peer, frame_kind::cancel, s.head.context, s.transfer_id, other_transfer_id);
    };
    switch (s.at) {
      case send::phase::queued:
        arrives = leaves;
        break;
      case send::phase::rts_sent: {
        // The receiver knows of the message, or will. Of one without bytes, the rts frame is all.
        const bool known = leaves || !in_link;
        arrives = outcome == cancel_result::arrived || (known && s.bytes == 0);
        if (known && !arrives) cancel(0);
        break;
      }
      case send::phase::streaming:
        if (outcome == cancel_result::drains) {
          s.at = send::phase::draining;
          return outcome;
        }
        arrives = end_streaming(s, leaves);
        break;
      case send::phase::idle:
      case send::phase::draining:
      case send::phase::done:
        break;
    }
  }
  if (s.at == send::phase::queued && !arrives) peers_.take_credit(s.peer, cost_of(s.bytes));
  settle(s);
  return arrives ? cancel_result::arrived : cancel_result::gone;
}

bool sends::end_streaming(send& s, bool all) noexcept {
  if (!all) peers_.answer(s.peer, frame_kind::cancel, s.head.context, s.transfer_id, s.head.transfer_id);
  return all;
}

void sends::release(send& s) noexcept {
  if (s.at == send::phase::idle) return;
  static_cast<base::list_hook<core::ready_tag>&>(s).unlink();
  if (s.at == send::phase::done || take_back(s) != cancel_result::drains) return;
  end_streaming(s, peers_.link_to(s.peer).drain(s));
  settle(s);
}

void sends::fail(send& s, errc code, const std::string& text) noexcept {
  if (s.at == send::phase::done || s.at == send::phase::idle || s.at == send::phase::draining) return;
  const cancel_result outcome = take_back(s);
  if (outcome != cancel_result::arrived || !given_up(code)) s.set_failure(code, text);
  if (outcome != cancel_result::drains) engine_.complete(s);
}

void sends::peer_closed(int peer) noexcept {
  const departure& why = peers_[peer].gone;
  ids_.for_each([&](send& s) {
    if (s.peer == peer) fail(s, why.code, why.text);
  });
}

void sends::closed_by(std::uint32_t context, int peer, const departure& why) noexcept {
  ids_.for_each([&](send& s) {
    if (s.peer == peer && s.head.context == context && s.at == send::phase::rts_sent)
      fail(s, why.code, why.text);
  });
}

}  // namespace tutti::p2p
