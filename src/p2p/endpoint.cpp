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
      rank_(rank),
      transfer_ids_(std::move(transfer_ids)),
      peers_(static_cast<std::size_t>(size)),
      closed_(static_cast<std::uint32_t>(size)) {
  kept_failures_.reserve(most_kept_failures);
}

endpoint::~endpoint() {
  for (const auto& u : unexpected_nodes_) delete[] u->data;
}

endpoint_usage endpoint::usage() const noexcept {
  endpoint_usage now;
  now.posted = matcher_.posted_count();
  now.unexpected = unexpected_nodes_.size() - free_unexpected_.size();
  now.transfer_ids = transfer_ids_.in_use();
  now.controls = controls_.in_use();
  return now;
}

void endpoint::open_context(std::uint32_t context, context_owner& owner) noexcept {
  to_tell_.reserve(contexts_.size() + 1);
  contexts_.emplace(context, open{&owner, -1, {}});
  matcher_.open_context(context, static_cast<int>(peers_.size()));
}

void endpoint::close_context(std::uint32_t context) noexcept {
  const std::string why = "the communicator was closed";
  fail_posted(context, errc::shut_down, why);
  end_probes([context](const probe& p) { return p.wanted.context == context; }, errc::shut_down, why);
  drop_unexpected(context);
  matcher_.close_context(context);
  if (const auto entry = contexts_.find(context); entry != contexts_.end()) {
    closings_ -= entry->second.closed_by.size();
    contexts_.erase(entry);
  }
  closed_.add(context);
}

void endpoint::renounce_context(std::uint32_t context) noexcept {
  drop_unexpected(context);
  closed_.add(context);
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
  peer_state& other = state_of(peer);
  if (other.why != errc::success) {
    s.set_failure(other.why, other.text);
    s.at = send::phase::done;
    return true;
  }
  if (is_closed_by(context, peer)) {
    set_gone(s, context, peer);
    s.at = send::phase::done;
    return true;
  }
  other.in_touch = true;
  transport::link& link = routes_.link_to(peer);
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
  peer_state& other = state_of(peer);
  transport::link* const link = other.link;
  if (link == nullptr || closings_ != 0 || !link->sends_eagerly(data, bytes) ||
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
    const peer_state& other = self.state_of(s.peer);
    if (other.why == errc::success) {
      self.returned_.push_back(s);
    } else {
      self.fail(s, other.why, other.text);
    }
    return;
  }
  if (s.at == send::phase::queued || s.at == send::phase::streaming) self.finish(s);
}

void endpoint::end_cts(int peer, const frame& head) noexcept {
  send* s = transfer_ids_.find_send(head.transfer_id);
  if (s == nullptr || s->peer != peer || s->at != send::phase::rts_sent) {
    // Taken back meanwhile: the receiver must stop waiting for it.
    frame answer;
    answer.kind = frame_kind::cancel;
    answer.context = head.context;
    answer.transfer_id = head.transfer_id;
    answer.other_transfer_id = head.other_transfer_id;
    post_control(peer, answer);
    return;
  }
  transport::link& link = routes_.link_to(peer);
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
  routes_.link_to(peer).cancel(*s);
  finish(*s);
}

void endpoint::closed_by(std::uint32_t context, int peer) noexcept {
  const auto entry = contexts_.find(context);
  if (entry == contexts_.end() || is_closed_by(entry->second, peer)) return;
  open& o = entry->second;
  o.closed_by.push_back(peer);
  ++closings_;
  const auto end_receive = [&](match::posted_receive& posted) {
    auto& r = static_cast<receive&>(posted);
    set_gone(r, context, peer);
    finish(r);
  };
  matcher_.take_posted_from(context, peer, end_receive);
  const bool nobody = nobody_left(o) >= 0;
  if (nobody) matcher_.take_posted_from(context, match::any_source, end_receive);
  const std::string text = o.owner->closed_text(peer);
  end_probes(
      [&](const probe& p) {
        return p.wanted.context == context && (p.wanted.source == peer || (p.wanted.source < 0 && nobody));
      },
      errc::peer_left, text);
  transfer_ids_.for_each([&](const transfer_id_table::named& is) {
    send* const s = is.sending;
    if (s != nullptr && s->peer == peer && s->head.context == context && s->at == send::phase::rts_sent)
      fail(*s, errc::peer_left, text);
  });
}

void endpoint::set_gone(core::completion& a, std::uint32_t context, int peer) noexcept {
  const peer_state& g = state_of(peer);
  if (g.why != errc::success) return a.set_failure(g.why, g.text);
  const context_owner& owner = *contexts_.find(context)->second.owner;
  a.set_failure(errc::peer_left, owner.closed_text(peer));
}

void endpoint::end(int peer, const frame& head, const destination_buffer& where) noexcept {
  peer_state& from = state_of(peer);
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
      end_fail(peer, head, where);
      break;
    case frame_kind::agree:
      end_agree(peer, head, where);
      break;
    case frame_kind::refuse:
    case frame_kind::fin:
      end_answer(peer, head);
      break;
    case frame_kind::credit:
      from.eager_out -= std::min(from.eager_out, head.length);
      break;
    case frame_kind::notice:
      admitted(peer, head);
      break;
    case frame_kind::ask:
      end_ask(peer, head);
      break;
    case frame_kind::tell:
      end_tell(peer, head);
      break;
    case frame_kind::leave:      // the link reports it by closed()
    case frame_kind::heartbeat:  // between the links
    case frame_kind::alive:
      break;
  }
}

transport::outgoing* endpoint::returned_of(int peer) noexcept {
  transport::outgoing* o = returned_.front();
  while (o != nullptr && static_cast<send*>(o)->peer != peer) o = returned_.after(*o);
  return o;
}

int endpoint::nobody_left(const open& o) const noexcept {
  int gone = -1;
  for (int p = 0; p < static_cast<int>(peers_.size()); ++p) {
    if (p == rank_ || !o.owner->has_member(p)) continue;
    if (!peer_gone(p) && !is_closed_by(o, p)) return -1;
    gone = p;
  }
  return in_touch(rank_) ? -1 : gone;
}

int endpoint::gone_of_any(std::uint32_t context) noexcept {
  const auto entry = contexts_.find(context);
  if (entry == contexts_.end()) return -1;
  if (const int last = nobody_left(entry->second); last >= 0) return last;
  return std::exchange(entry->second.untold, -1);
}

void endpoint::closed(int peer, errc why, std::string text) noexcept {
  peer_state& g = state_of(peer);
  if (g.why != errc::success) return;
  // It has taken leave of the ranks that it knew. Others find its listener closed.
  if (why == errc::peer_failed && !g.heard && routes_.has_left(peer)) {
    why = errc::peer_left;
    text = routes_.describe(peer) + " has finished and left";
  }
  g.why = why;
  g.text = std::move(text);
  g.link = nullptr;
  if (why == errc::protocol) ++counters_.corrupt_frames;
  // Messages that had come whole can still be received; partial ones cannot.
  drop_arriving(peer);
  while (transport::outgoing* o = returned_of(peer)) {
    o->unlink();
    fail(*static_cast<send*>(o), g.why, g.text);
  }
  // A leaving rank has ended its sends. If nothing has come of a receive's message, that was taken back, and
  // the answer that says so will not come: the receive waits again.
  const auto goes_on = [why](const receive& r) {
    return why == errc::peer_left && r.received == 0 && r.expected == fingerprint{};
  };
  transfer_ids_.for_each([&](const transfer_id_table::named& is) {
    if (is.sending != nullptr && is.sending->peer == peer) fail(*is.sending, g.why, g.text);
    if (is.receiving != nullptr && is.receiving->peer == peer && !goes_on(*is.receiving))
      fail(*is.receiving, g.why, g.text);
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
  ++gone_;
  // A receive from any source goes on while a member that may send is left; a member's death is reported to
  // it at once.
  const auto ends_any = [&](const open& o) {
    return o.owner->has_member(peer) && (why != errc::peer_left || nobody_left(o) >= 0);
  };
  for (auto& [context, entry] : contexts_) {
    bool told = false;
    const auto end_receive = [&](match::posted_receive& posted) {
      auto& r = static_cast<receive&>(posted);
      told = told || r.wanted.source < 0;
      r.set_failure(g.why, g.text);
      finish(r);
    };
    matcher_.take_posted_from(context, peer, end_receive);
    if (!ends_any(entry)) continue;
    matcher_.take_posted_from(context, match::any_source, end_receive);
    if (!told && why != errc::peer_left) entry.untold = peer;
  }
  end_probes(
      [&](const probe& p) {
        if (p.wanted.source >= 0) return p.wanted.source == peer;
        const auto entry = contexts_.find(p.wanted.context);
        return entry != contexts_.end() && ends_any(entry->second);
      },
      g.why, g.text);
  // Their reactions may close some of them.
  to_tell_.clear();
  for (const auto& [context, entry] : contexts_) to_tell_.push_back(entry.owner);
  for (context_owner* owner : to_tell_) owner->peer_closed(peer, g.why, g.text);
  routes_.peer_closed(peer);
}

}  // namespace tutti::p2p
