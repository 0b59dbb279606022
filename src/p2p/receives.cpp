// SPDX-License-Identifier: Apache-2.0
#include "p2p/receives.hpp"

#include "flight/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::p2p {

namespace {

// What does not fit is dropped.
void copy_message(receive& r, const std::byte* from, std::uint64_t bytes) noexcept {
  const std::size_t taken = std::min<std::size_t>(bytes, r.capacity);
  if (taken > 0) std::memcpy(r.data, from, taken);
}

}  // namespace

bool receives::start_with(receive& r, unexpected& u) noexcept {
  if (take(r, u)) {
    r.at = receive::phase::done;
    return true;
  }
  engine_.begin_wait();
  return false;
}

bool receives::start(receive& r, unexpected& held, void* data, std::size_t capacity) noexcept {
  ++counters_.receives;
  r.data = static_cast<std::byte*>(data);
  r.capacity = capacity;
  r.wanted = held.from;
  r.arrival = held.arrival;
  r.matched = true;
  held.held = false;
  if (!held.lost) return start_with(r, held);
  const departure& why = peers_[held.peer].gone;
  if (why.code != errc::success) {
    r.set_failure(why.code, why.text);
  } else {
    r.set_failure(errc::cancelled,
                  fmt::format("{} took back the message before it was received", peers_.describe(held.peer)));
  }
  unexpected_.recycle(held);
  r.at = receive::phase::done;
  return true;
}

void receives::put_back(unexpected& held) noexcept {
  held.held = false;
  if (held.lost) return unexpected_.recycle(held);
  offer(held);
}

void receives::fail_without_sender(receive& r, int gone) noexcept {
  matcher_.cancel(r);
  const departure why = contexts_.departure_of(r.wanted.context, gone);
  r.set_failure(why.code, why.text);
  r.at = receive::phase::done;
}

// Records how the message differs from what the receive expects.
void receives::note_misfit(receive& r, int peer, const frame& head) noexcept {
  if (head.length > r.capacity)
    r.set_failure(
        errc::truncated,
        fmt::format("a message of {} bytes from {} with tag {} came for a receive buffer of {} bytes; "
                    "nothing was written past its end: make the buffer at least as long as the message",
                    head.length, peers_.describe(peer), head.tag, r.capacity));
  // Only element counts that differ by rank can disagree.
  if (r.expected != point_to_point && head.length != r.capacity)
    r.set_failure(
        errc::mismatch,
        fmt::format("{} sent {} bytes where {} expects {}: the element counts that the ranks gave for this "
                    "block differ",
                    peers_.describe(peer), head.length, peers_.describe(peers_.rank()), r.capacity));
  // Most differences are found when the first frame comes (admit); here are those of ranks far ahead of this
  // one.
  if (head.fingerprint != r.expected) {
    const context_owner* const owner = contexts_.owner_of(head.context);
    if (owner != nullptr)
      r.set_failure(errc::mismatch, owner->mismatch_text(peer, static_cast<std::uint32_t>(head.tag),
                                                         r.expected, head.fingerprint));
  }
}

bool receives::take(receive& r, unexpected& u) noexcept {
  note_message(r, u.peer, u.head);
  if (u.head.kind == frame_kind::rts) {
    clear_to_send(r, u.peer, u.head);
    unexpected_.recycle(u);
    return r.at == receive::phase::done;
  }
  const bool eager = peers_[u.peer].arriving == &u;
  if (eager || u.transfer_id != 0) {
    const bool ends = r.failure() != errc::success;
    if (ends) {
      unexpected_.stop_arriving(u);
    } else {
      u.drains = hand_over(u, r, r.result.bytes) == redirect_result::drains;
      r.at = eager ? receive::phase::arriving : receive::phase::cts_sent;
    }
    unexpected_.recycle(u);
    return ends;
  }
  copy_message(r, u.data, u.head.length);
  unexpected_.retire(u);
  return true;
}

redirect_result receives::hand_over(destination_owner& from, destination_owner& to,
                                    std::uint64_t bytes) noexcept {
  to.received = from.received;
  to.unbegun = from.unbegun;
  // Its parts come in any order.
  if (from.received > 0) std::memcpy(to.data, from.data, bytes);
  to.transfer_id = std::exchange(from.transfer_id, 0);
  ids_.replace(to.transfer_id, to);
  destination_owner*& arriving = peers_[from.peer].arriving;
  if (arriving == &from) arriving = &to;
  return peers_.link_to(from.peer).redirect_destination(
      &from, {to.data, std::min<std::size_t>(bytes, to.capacity), &to});
}

// Has the link fetch the message of an rts frame, or asks for it. A message that would not fit is refused. A message
// without bytes needs no data frame, which would never end it: the receive completes at once, and the sender is
// told.
void receives::clear_to_send(receive& r, int peer, const frame& rts) noexcept {
  if (r.failure() != errc::success || rts.length == 0) {
    r.at = receive::phase::done;
    return peers_.answer(peer, frame_kind::refuse, rts.context, rts.transfer_id);
  }
  r.transfer_id = ids_.insert(r);
  r.unbegun = rts.length;
  r.at = receive::phase::cts_sent;
  if (peers_.link_to(peer).fetch(rts, r.transfer_id)) {
    ++counters_.fetched;
  } else {
    peers_.answer(peer, frame_kind::cts, rts.context, rts.transfer_id, r.transfer_id);
  }
}

// Whether a message has no receiver and never will.
bool receives::is_unwanted(int peer, const frame& head) noexcept {
  if (!contexts_.is_outsider(head.context, peer)) return contexts_.was_closed(head.context);
  control_.turn_away(peer, head.context);
  return true;
}

// Takes out the receive for a message of the peer. nullptr: there is none.
receive* receives::match(int peer, const frame& head) noexcept {
  match::posted_receive* const posted = matcher_.arrive({head.context, peer, head.tag});
  // A receive that names its source names a member.
  if (posted != nullptr && posted->wanted.source < 0 && contexts_.is_outsider(head.context, peer))
      [[unlikely]] {
    matcher_.post_again(*posted);
    return nullptr;
  }
  return static_cast<receive*>(posted);
}

// Keeps a message that came before its receive; nullptr: too many wait, or there is no memory for it.
unexpected* receives::keep_early(int peer, const frame& head) noexcept {
  const bool rts = head.kind == frame_kind::rts;
  if (!peers_.admit_waiting(peer)) [[unlikely]]
    return nullptr;
  if (unexpected* const u = unexpected_.memory_of(rts ? 0 : head.length)) {
    u->head = head;
    u->peer = peer;
    u->counted = true;
    if (unexpected_.keep(*u)) {
      ++counters_.unexpected;
      return u;
    }
    unexpected_.recycle(*u);
  }
  peers_.lose(peer, rts ? "the rts frame of a message that came before its receive"
                        : "a message that came before its receive");
  return nullptr;
}

destination_buffer receives::begin_eager(int peer, const frame& head) noexcept {
  if (!peers_.use_credit(peer, head.length) || !contexts_.admits(peer, head)) return {};
  if (receive* const posted = match(peer, head)) {
    receive& r = *posted;
    note_message(r, peer, head);
    r.at = receive::phase::arriving;
    peers_[peer].arriving = &r;
    return {r.data, std::min<std::size_t>(head.length, r.capacity), static_cast<destination_owner*>(&r)};
  }
  if (is_unwanted(peer, head)) return {};
  unexpected* const u = keep_early(peer, head);
  if (u == nullptr) return {};
  peers_[peer].arriving = u;
  return {u->data, head.length, static_cast<destination_owner*>(u)};
}

destination_buffer receives::begin_data(int peer, const frame& head) noexcept {
  destination_owner* const to = ids_.find(head.transfer_id);
  const std::uint64_t at = head.other_transfer_id;
  if (to == nullptr || to->peer != peer || at > to->capacity) return {};
  // An rts frame that nobody has answered: its id is known to this rank only.
  if (to->is == destination_owner::kind::unexpected &&
      static_cast<unexpected*>(to)->head.kind == frame_kind::rts) [[unlikely]]
    return {};
  // When all bytes have come no frame is still writing: else one would, after the receive has ended.
  if (head.length > to->unbegun) [[unlikely]] {
    peers_.reject(peer, "more bytes of a message than it has");
    return {};
  }
  to->unbegun -= head.length;
  return {to->data + at, std::min<std::size_t>(head.length, to->capacity - at), to};
}

void receives::deliver_eager(int peer, const frame& head, const std::byte* payload) noexcept {
  peer_state& from = peers_[peer];
  from.in_touch = true;
  from.heard = true;
  if (from.lost) [[unlikely]]
    return;
  ++from.counters.receives;
  from.counters.bytes_received += head.length;
  if (!peers_.use_credit(peer, from, head.length)) return;
  if (!contexts_.admits(peer, head)) return peers_.give_credit(peer, from, head.length);
  if (receive* const posted = match(peer, head)) {
    receive& r = *posted;
    note_message(r, peer, head);
    copy_message(r, payload, head.length);
    peers_.give_credit(peer, from, head.length);
    finish(r);
    return;
  }
  if (is_unwanted(peer, head)) return peers_.give_credit(peer, from, head.length);
  unexpected* const u = keep_early(peer, head);
  if (u == nullptr) return;
  if (head.length > 0) std::memcpy(u->data, payload, head.length);
}

void receives::end_eager(int peer, const frame& head, const destination_buffer& where) noexcept {
  peer_state& from = peers_[peer];
  from.arriving = nullptr;
  ++from.counters.receives;
  from.counters.bytes_received += head.length;
  auto* owner = static_cast<destination_owner*>(where.owner);
  if (owner != nullptr && owner->is == destination_owner::kind::unexpected) return;  // it waits in its queue
  peers_.give_credit(peer, from, head.length);
  if (owner != nullptr) finish(*static_cast<receive*>(owner));
}

void receives::end_rts(int peer, const frame& head) noexcept {
  ++peers_[peer].counters.receives;
  if (!contexts_.admits(peer, head)) return;
  if (receive* const posted = match(peer, head)) {
    receive& r = *posted;
    note_message(r, peer, head);
    clear_to_send(r, peer, head);
    if (r.at == receive::phase::done) finish(r);
  } else if (!is_unwanted(peer, head)) {
    keep_early(peer, head);
  } else if ((head.fingerprint == point_to_point || head.fingerprint[0] == for_taker) &&
             contexts_.was_closed(head.context)) {
    control_.announce_closing(head.context, peer);
  } else {
    peers_.answer(peer, frame_kind::refuse, head.context, head.transfer_id);
  }
}

void receives::end_data(int peer, const frame& head, const destination_buffer& where) noexcept {
  peers_[peer].counters.bytes_received += head.length;
  if (where.owner == nullptr) return;
  auto* owner = static_cast<destination_owner*>(where.owner);
  owner->received += head.length;
  if (owner->is == destination_owner::kind::unexpected) {
    auto& u = *static_cast<unexpected*>(owner);
    if (u.received < u.head.length) return;
    ids_.erase(std::exchange(u.transfer_id, 0));
    return;
  }
  auto& r = *static_cast<receive*>(owner);
  if (r.recorder != nullptr) r.recorder->moved(r.record, head.length);
  if (r.received >= r.result.bytes) finish(r);
}

bool receives::fail_posted(std::uint32_t context, int source, const departure& why) noexcept {
  bool any = false;
  matcher_.take_posted(context, source, [&](match::posted_receive& posted) {
    auto& r = static_cast<receive&>(posted);
    r.set_failure(why.code, why.text);
    finish(r);
    any = true;
  });
  return any;
}

}  // namespace tutti::p2p
