// SPDX-License-Identifier: Apache-2.0
// The endpoint's receives: matching, destinations, and the memory of unexpected messages.
#include "base/heap_use.hpp"
#include "flight/recorder.hpp"
#include "p2p/endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace tutti::p2p {

using transport::destination_buffer;
using transport::frame;
using transport::frame_kind;

// Unexpected messages up to this size keep their memory when their node is reused.
constexpr std::size_t kept_unexpected_bytes = 8 * 1024;

bool endpoint::waiting_message(std::uint32_t context, int source, status& found) noexcept {
  const match::unexpected_message* m = matcher_.find(match::envelope{context, source, any_tag});
  if (m == nullptr) m = matcher_.find_outside(context, source);
  if (m == nullptr) return false;
  const auto& u = static_cast<const unexpected&>(*m);
  found = status{u.peer, u.head.tag, u.head.length};
  return true;
}

bool endpoint::start(receive& r, std::uint32_t context, int source, int tag, void* data, std::size_t capacity,
                     const fingerprint& part_of) noexcept {
  ++counters_.receives;
  r.data = static_cast<std::byte*>(data);
  r.capacity = capacity;
  r.expected = part_of;
  r.received = 0;
  r.lost = false;
  r.wanted = match::envelope{context, source, tag};
  if (match::unexpected_message* m = matcher_.post(r)) {
    auto& u = static_cast<unexpected&>(*m);
    if (take_unexpected(r, u)) {
      r.at = receive::phase::done;
      return true;
    }
    engine_.begin_wait();
    return false;
  }
  if (const int gone = contexts_.gone_source(context, source); gone >= 0) {
    matcher_.cancel(r);
    const departure why = contexts_.departure_of(context, gone);
    r.set_failure(why.why, why.text);
    r.at = receive::phase::done;
    return true;
  }
  r.at = receive::phase::posted;
  engine_.begin_wait();
  return false;
}

void endpoint::note_message(receive& r, int peer, const frame& head) noexcept {
  r.peer = peer;
  r.result.source = peer;
  r.result.tag = head.tag;
  r.result.bytes = head.length;
  // All parts of a collective know their length.
  const bool fits = head.length == r.capacity || (head.length < r.capacity && r.expected == fingerprint{});
  if (!fits || head.fingerprint != r.expected) note_misfit(r, peer, head);
}

// Records how the message differs from what the receive expects.
void endpoint::note_misfit(receive& r, int peer, const frame& head) noexcept {
  if (head.length > r.capacity)
    r.set_failure(
        errc::truncated,
        fmt::format("a message of {} bytes from {} with tag {} came for a receive buffer of {} bytes; "
                    "nothing was written past its end: make the buffer at least as long as the message",
                    head.length, peers_.describe(peer), head.tag, r.capacity));
  // Only element counts that differ by rank can disagree.
  static constexpr fingerprint none{};
  if (r.expected != none && head.length != r.capacity)
    r.set_failure(
        errc::mismatch,
        fmt::format("{} sent {} bytes where {} expects {}: the element counts that the ranks gave for this "
                    "block differ",
                    peers_.describe(peer), head.length, peers_.describe(rank()), r.capacity));
  // Most differences are found when the first frame comes (admit); here are those of ranks far ahead of this
  // one.
  if (head.fingerprint != r.expected) {
    const context_owner* const owner = contexts_.owner_of(head.context);
    if (owner != nullptr)
      r.set_failure(errc::mismatch, owner->mismatch_text(peer, static_cast<std::uint32_t>(head.tag),
                                                         r.expected, head.fingerprint));
  }
}

// Gives a kept message to its receive. Returns true if the receive is complete.
bool endpoint::take_unexpected(receive& r, unexpected& u) noexcept {
  note_message(r, u.peer, u.head);
  if (u.head.kind == frame_kind::rts) {
    if (peers_.gone(u.peer)) {
      r.set_failure(peers_[u.peer].gone.why, peers_[u.peer].gone.text);
      recycle(u);
      return true;
    }
    clear_to_send(r, u.peer, u.head);
    recycle(u);
    return r.at == receive::phase::done;
  }
  if (u.transfer_id != 0) {
    if (r.failure() != errc::success) {
      stop_arriving(u);
      recycle(u);
      return true;
    }
    take_over(r, u);
    return false;
  }
  if (!u.complete) {
    u.claimed_by = &r;
    r.claimed = &u;
    r.at = receive::phase::claiming;
    return false;
  }
  const std::size_t taken = std::min<std::size_t>(u.head.length, r.capacity);
  if (taken > 0) std::memcpy(r.data, u.data, taken);
  retire(u);
  return true;
}

// Has the link fetch the announced message, or asks for it. A message that would not fit is refused. A message
// without bytes needs no data frame, which would never end it: the receive completes at once, and the sender is
// told.
void endpoint::clear_to_send(receive& r, int peer, const frame& rts) noexcept {
  if (r.failure() != errc::success || rts.length == 0) {
    r.at = receive::phase::done;
    return peers_.answer(peer, frame_kind::refuse, rts.context, rts.transfer_id);
  }
  r.transfer_id = transfer_ids_.insert(r);
  r.at = receive::phase::cts_sent;
  if (peers_.link_to(peer).fetch(rts, r.transfer_id)) {
    ++counters_.fetched;
  } else {
    peers_.answer(peer, frame_kind::cts, rts.context, rts.transfer_id, r.transfer_id);
  }
}

destination_buffer endpoint::begin(int peer, const frame& head) noexcept {
  peer_state& from = peers_[peer];
  from.in_touch = true;
  from.heard = true;
  if (from.lost) [[unlikely]]
    return {};
  switch (head.kind) {
    case frame_kind::eager:
      return begin_eager(peer, head);
    case frame_kind::data:
      return begin_data(peer, head);
    case frame_kind::fail:
    case frame_kind::agree: {
      unexpected* const u = memory_of(head.length);
      if (u == nullptr) return {};
      return destination_buffer{u->data, head.length, static_cast<destination_owner*>(u)};
    }
    default:
      return {};
  }
}

destination_buffer endpoint::begin_eager(int peer, const frame& head) noexcept {
  if (!contexts_.admits(peer, head)) return {};
  const match::envelope from{head.context, peer, head.tag};
  if (match::posted_receive* posted = matcher_.arrive(from)) {
    auto& r = static_cast<receive&>(*posted);
    note_message(r, peer, head);
    r.at = receive::phase::arriving;
    peers_[peer].arriving = &r;
    return destination_buffer{r.data, std::min<std::size_t>(head.length, r.capacity),
                              static_cast<destination_owner*>(&r)};
  }
  return keep_early(peer, head);
}

// Keeps an eager message that came before its receive.
destination_buffer endpoint::keep_early(int peer, const frame& head) noexcept {
  if (contexts_.was_closed(head.context)) return {};
  unexpected* const u = memory_of(head.length);
  if (u == nullptr) {
    peers_.lose(peer, "a message that came before its receive");
    return {};
  }
  ++counters_.unexpected;
  u->head = head;
  u->peer = peer;
  u->complete = false;
  u->from = match::envelope{head.context, peer, head.tag};
  matcher_.keep(*u);
  answer_probes(*u);
  peers_[peer].arriving = u;
  return destination_buffer{u->data, head.length, static_cast<destination_owner*>(u)};
}

destination_buffer endpoint::begin_data(int peer, const frame& head) noexcept {
  const transfer_id_table::named is = transfer_ids_.find_any(head.transfer_id);
  if (unexpected* u = is.kept) {
    if (u->peer != peer || head.other_transfer_id > u->head.length) return {};
    const std::size_t left = static_cast<std::size_t>(u->head.length - head.other_transfer_id);
    return destination_buffer{u->data + head.other_transfer_id, std::min<std::size_t>(head.length, left),
                              static_cast<destination_owner*>(u)};
  }
  receive* r = is.receiving;
  if (r == nullptr || r->peer != peer || head.other_transfer_id > r->capacity) return {};
  const std::size_t room = std::min<std::size_t>(head.length, r->capacity - head.other_transfer_id);
  return destination_buffer{r->data + head.other_transfer_id, room, static_cast<destination_owner*>(r)};
}

void endpoint::deliver(int peer, const frame& head, const std::byte* payload) noexcept {
  peer_state& from = peers_[peer];
  if (head.kind != frame_kind::eager || from.lost) return inbound::deliver(peer, head, payload);
  from.in_touch = true;
  from.heard = true;
  ++from.counters.receives;
  from.counters.bytes_received += head.length;
  if (!contexts_.admits(peer, head)) return peers_.give_credit(peer, head.length);
  if (match::posted_receive* posted = matcher_.arrive({head.context, peer, head.tag})) {
    auto& r = static_cast<receive&>(*posted);
    note_message(r, peer, head);
    const std::size_t taken = std::min<std::size_t>(head.length, r.capacity);
    if (taken > 0) std::memcpy(r.data, payload, taken);
    peers_.give_credit(peer, head.length);
    finish(r);
    return;
  }
  const destination_buffer where = keep_early(peer, head);
  if (where.owner == nullptr && from.lost) return;
  if (where.room > 0) std::memcpy(where.at, payload, where.room);
  from.arriving = nullptr;
  end_eager(peer, head, where);
}

void endpoint::end_eager(int peer, const frame& head, const destination_buffer& where) noexcept {
  auto* owner = static_cast<destination_owner*>(where.owner);
  if (owner == nullptr || owner->is == destination_owner::kind::receive)
    peers_.give_credit(peer, head.length);
  if (owner == nullptr) return;
  if (owner->is == destination_owner::kind::receive) {
    finish(*static_cast<receive*>(owner));
    return;
  }
  auto& u = *static_cast<unexpected*>(owner);
  u.complete = true;
  receive* r = u.claimed_by;
  if (r == nullptr) {
    if (!u.queued()) retire(u);  // its receive was cancelled while it arrived
    return;
  }
  const std::size_t taken = std::min<std::size_t>(u.head.length, r->capacity);
  if (taken > 0) std::memcpy(r->data, u.data, taken);
  r->claimed = nullptr;
  retire(u);
  finish(*r);
}

void endpoint::end_rts(int peer, const frame& head) noexcept {
  if (!contexts_.admits(peer, head)) return;
  const match::envelope from{head.context, peer, head.tag};
  if (match::posted_receive* posted = matcher_.arrive(from)) {
    auto& r = static_cast<receive&>(*posted);
    note_message(r, peer, head);
    clear_to_send(r, peer, head);
    if (r.at == receive::phase::done) finish(r);
    return;
  }
  if (contexts_.was_closed(head.context)) {
    if (head.fingerprint == fingerprint{}) return control_.announce_closing(head.context, peer);
    return peers_.answer(peer, frame_kind::refuse, head.context, head.transfer_id);
  }
  unexpected* const u = memory_of(0);
  if (u == nullptr) return peers_.lose(peer, "the rts frame of a message that came before its receive");
  ++counters_.unexpected;
  u->head = head;
  u->peer = peer;
  u->complete = true;
  u->from = from;
  unmatched_rts_.push_back(*u);
  matcher_.keep(*u);
  answer_probes(*u);
}

void endpoint::end_data(const frame& head, const destination_buffer& where) noexcept {
  if (where.owner == nullptr) return;
  auto* owner = static_cast<destination_owner*>(where.owner);
  if (owner->is == destination_owner::kind::unexpected) {
    auto& u = *static_cast<unexpected*>(owner);
    u.received += head.length;
    if (u.received < u.head.length) return;
    transfer_ids_.erase(std::exchange(u.transfer_id, 0));
    u.complete = true;
    return;
  }
  auto& r = *static_cast<receive*>(owner);
  r.received += head.length;
  if (r.recorder != nullptr) r.recorder->moved(r.record, head.length);
  if (r.received >= r.result.bytes) finish(r);
}

void endpoint::fail_posted(std::uint32_t context, errc code, const std::string& text) noexcept {
  matcher_.take_posted(context, [&](match::posted_receive& posted) {
    auto& r = static_cast<receive&>(posted);
    r.set_failure(code, text);
    finish(r);
  });
}

std::size_t endpoint::fail_posted_from(std::uint32_t context, int source, const departure& why) noexcept {
  std::size_t n = 0;
  matcher_.take_posted_from(context, source, [&](match::posted_receive& posted) {
    auto& r = static_cast<receive&>(posted);
    r.set_failure(why.why, why.text);
    finish(r);
    ++n;
  });
  return n;
}

// The rest of the eager frame will not come.
void endpoint::drop_arriving(int peer) noexcept {
  peer_state& g = peers_[peer];
  destination_owner* owner = std::exchange(g.arriving, nullptr);
  if (owner == nullptr) return;
  if (owner->is == destination_owner::kind::receive) {
    fail(*static_cast<receive*>(owner), g.gone.why, g.gone.text);
    return;
  }
  auto& u = *static_cast<unexpected*>(owner);
  if (u.claimed_by != nullptr) fail(*u.claimed_by, g.gone.why, g.gone.text);
  discard(u);
}

void endpoint::retire(unexpected& u) noexcept {
  if (u.head.kind == frame_kind::eager) peers_.give_credit(u.peer, u.head.length);
  recycle(u);
}

unexpected* endpoint::new_unexpected(std::size_t bytes) {
  if (free_unexpected_.empty()) {
    free_unexpected_.reserve(unexpected_nodes_.size() + 1);
    unexpected_nodes_.push_back(std::make_unique<unexpected>());
    base::count_heap_use(sizeof(unexpected));
    free_unexpected_.push_back(unexpected_nodes_.back().get());
  }
  unexpected* const u = free_unexpected_.back();
  if (bytes > u->capacity) {
    delete[] std::exchange(u->data, nullptr);
    u->capacity = 0;
    u->data = new std::byte[bytes];
    u->capacity = bytes;
    base::count_heap_use(bytes);
  }
  free_unexpected_.pop_back();
  u->claimed_by = nullptr;
  u->complete = false;
  u->transfer_id = 0;
  u->received = 0;
  return u;
}

// The same; null: there is no memory.
unexpected* endpoint::memory_of(std::uint64_t bytes) noexcept {
  try {
    return new_unexpected(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void endpoint::recycle(unexpected& u) noexcept {
  static_cast<base::list_hook<rts_tag>&>(u).unlink();
  u.claimed_by = nullptr;
  if (u.capacity > kept_unexpected_bytes) {
    delete[] u.data;
    u.data = nullptr;
    u.capacity = 0;
  }
  free_unexpected_.push_back(&u);
}

}  // namespace tutti::p2p
