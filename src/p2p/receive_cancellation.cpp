// SPDX-License-Identifier: Apache-2.0
// Sends and receives that end early, by their owner or by the other side. The owner may reuse the buffer at
// once. A receive that ends does not lose its message. The part that has come is kept as if it had come
// before its receive, in its place among the others. The next receive that accepts it goes on from there. The
// cases of a receive:
//
// - An eager frame is arriving: the link moves its destination to memory of the endpoint
//   (link::redirect_destination), with the part that has come.
// - An announced message was asked for: it gets memory of its size, and its transfer id stands for that
//   memory from now on. So its data frames go on, and the next receive takes over both. Without memory the
//   message is lost, and the receive ends with errc::resources.
// - The link reads the message itself: it stays with its sender, its slot goes back to offered, and the next
//   receive starts again.
// - Complete but not yet reported: dropping the receive queues the message again. Cancelling it is too late
//   and reports the result.
//
// A receive that was cutting its message off ends with errc::truncated. A send that reports errc::cancelled
// is never received. A receive whose message is taken back before any of it came waits again in its place in
// the order of posting; later it ends with errc::cancelled, naming the sender. Later messages that other
// receives have been given meanwhile stay with those: only unmatched messages have an order to keep. Receives
// of collectives are the exception: their communicator fails, and their messages are dropped.
#include "p2p/endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::p2p {

using transport::cancel_result;
using transport::destination_buffer;
using transport::frame;
using transport::frame_kind;

namespace {

constexpr fingerprint none{};

// Whether the owner ended it; otherwise something is broken, and messages are lost with it.
bool given_up(errc code) noexcept { return code == errc::cancelled || code == errc::timed_out; }

}  // namespace

// ---- sends ----

// Takes a send back. On return nothing refers to the send or its buffer. Returns true if the message arrives
// all the same.
bool endpoint::take_back(send& s) noexcept {
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
      case send::phase::rts_sent:
        arrives = outcome == cancel_result::arrived;
        // The receiver knows of the message, or will.
        if (!arrives && (leaves || !in_link)) cancel(0);
        break;
      case send::phase::streaming:
        arrives = leaves;
        if (!arrives) cancel(s.head.transfer_id);
        break;
      case send::phase::idle:
      case send::phase::done:
        break;
    }
  }
  if (s.at == send::phase::queued && !arrives) peers_.take_credit(s.peer, cost_of(s.bytes));
  if (s.transfer_id != 0) transfer_ids_.erase(s.transfer_id);
  s.transfer_id = 0;
  s.at = send::phase::done;
  stop_waiting(s);
  return arrives;
}

void endpoint::release(send& s) noexcept {
  if (s.at == send::phase::idle) return;
  static_cast<base::list_hook<core::ready_tag>&>(s).unlink();
  if (s.at != send::phase::done) take_back(s);
}

void endpoint::fail(send& s, errc code, const std::string& text) noexcept {
  if (s.at == send::phase::done || s.at == send::phase::idle) return;
  const bool arrives = take_back(s);
  if (!arrives || !given_up(code)) s.set_failure(code, text);
  engine_.complete(s);
}

// ---- receives ----

void endpoint::release(receive& r) noexcept {
  auto& ready = static_cast<base::list_hook<core::ready_tag>&>(r);
  const bool undelivered = ready.linked();
  ready.unlink();
  const bool keep = r.expected == none;
  const int peer = r.peer;
  unexpected* back = nullptr;
  bool lost = false;
  switch (r.at) {
    case receive::phase::idle:
      return;
    case receive::phase::done:
      // Complete, but not reported.
      if (!undelivered) return;
      lost = r.lost;
      if (keep && r.failure() == errc::success) {
        back = keep_whole(r);
        lost = back == nullptr;
      }
      break;
    default:
      back = detach(r, keep, lost);
  }
  if (back != nullptr) offer(*back);
  // Other receives wait for it, or for a message behind it, and nothing else can tell them.
  if (lost) peers_.lose(peer, "a message whose receive ended early");
}

void endpoint::fail(receive& r, errc code, const std::string& text) noexcept {
  if (r.at == receive::phase::done || r.at == receive::phase::idle) return;
  end_early(r, code, text, given_up(code) && r.expected == none);
}

void endpoint::end_early(receive& r, errc code, const std::string& text, bool keep) noexcept {
  // The bytes without room are gone: such a message can only be reported as truncated.
  const bool too_long = keep && r.at == receive::phase::arriving && r.failure() != errc::success;
  unexpected* const back = detach(r, keep, r.lost);
  if (r.lost) {
    r.set_failure(
        errc::resources,
        fmt::format("a message of {} bytes from {} with tag {} is lost: its receive ended early ({}) when it "
                    "had begun to arrive, and there is no memory to keep it in",
                    r.result.bytes, peers_.describe(r.peer), r.result.tag, text));
  } else if (!too_long) {
    r.set_failure(code, text);
  }
  engine_.complete(r);
  if (back != nullptr) offer(*back);
}

// Detaches a receive: on return nothing refers to it or its buffer. Returns its message if it has one that is
// to be kept; `lost` is set if there is no memory for it.
unexpected* endpoint::detach(receive& r, bool keep, bool& lost) noexcept {
  auto* const me = static_cast<destination_owner*>(&r);
  const bool has_link = r.at != receive::phase::posted && !peers_.gone(r.peer);
  transport::link* const link = has_link ? &peers_.link_to(r.peer) : nullptr;
  keep = keep && has_link;
  unexpected* back = nullptr;
  switch (r.at) {
    case receive::phase::idle:
    case receive::phase::done:
      return nullptr;
    case receive::phase::posted:
      matcher_.cancel(r);
      break;
    case receive::phase::arriving: {
      keep = keep && r.failure() == errc::success;
      if (keep) back = memory_for(r, frame_kind::eager, r.result.bytes);
      lost = keep && back == nullptr;
      destination_buffer instead;
      if (back != nullptr)
        instead = destination_buffer{back->data, r.result.bytes, static_cast<destination_owner*>(back)};
      const bool moved = link != nullptr && link->redirect_destination(me, instead);
      if (back != nullptr && !moved) {  // the link was cut
        recycle(*back);
        back = nullptr;
      }
      peers_[r.peer].arriving = back;
      break;
    }
    case receive::phase::claiming:
      r.claimed->claimed_by = nullptr;
      if (keep) back = r.claimed;
      break;
    case receive::phase::cts_sent: {
      frame rts;
      if (keep && link->stop_fetching(r.transfer_id, rts)) {
        back = memory_for(r, frame_kind::rts, 0);
        if (back != nullptr) {
          back->head = rts;
          back->complete = true;
        }
      } else if (keep) {
        back = memory_for(r, frame_kind::data, r.result.bytes);
      }
      lost = keep && back == nullptr;
      if (back != nullptr && back->head.kind == frame_kind::data) {
        keep_arriving(r, *back);
      } else {
        // Data in flight find no transfer id and are dropped.
        transfer_ids_.erase(r.transfer_id);
        if (link != nullptr) link->redirect_destination(me, destination_buffer{});
      }
      break;
    }
  }
  if (back != nullptr) ++counters_.given_back;
  r.transfer_id = 0;
  r.claimed = nullptr;
  r.at = receive::phase::done;
  stop_waiting(r);
  return back;
}

// ---- messages without their receive ----

// Memory for the message of `r`; nullptr: there is none.
unexpected* endpoint::memory_for(const receive& r, frame_kind kind, std::size_t bytes) noexcept {
  unexpected* const u = memory_of(bytes);
  if (u == nullptr) return nullptr;
  u->head = frame{};
  u->head.kind = kind;
  u->head.context = r.wanted.context;
  u->head.tag = r.result.tag;
  u->head.length = r.result.bytes;
  u->peer = r.peer;
  u->from = match::envelope{r.wanted.context, r.peer, r.result.tag};
  u->arrival = r.arrival;
  return u;
}

// Keeps the complete message in the buffer of `r`.
unexpected* endpoint::keep_whole(const receive& r) noexcept {
  unexpected* const u = memory_for(r, frame_kind::data, r.result.bytes);
  if (u == nullptr) return nullptr;
  if (r.result.bytes > 0) std::memcpy(u->data, r.data, r.result.bytes);
  u->complete = true;
  ++counters_.given_back;
  return u;
}

// Redirects data frames from `r` to `u`.
void endpoint::keep_arriving(receive& r, unexpected& u) noexcept {
  u.received = r.received;
  // Its parts come in any order.
  if (r.received > 0) std::memcpy(u.data, r.data, r.result.bytes);
  u.transfer_id = r.transfer_id;
  transfer_ids_.replace(u.transfer_id, u);
  const destination_buffer whole{u.data, r.result.bytes, static_cast<destination_owner*>(&u)};
  peers_.link_to(r.peer).redirect_destination(static_cast<destination_owner*>(&r), whole);
}

// The reverse: redirects data frames from `u` to `r`, and ends `u`.
void endpoint::take_over(receive& r, unexpected& u) noexcept {
  r.received = u.received;
  if (u.received > 0) std::memcpy(r.data, u.data, r.result.bytes);
  r.transfer_id = u.transfer_id;
  r.at = receive::phase::cts_sent;
  transfer_ids_.replace(r.transfer_id, r);
  const destination_buffer whole{r.data, r.result.bytes, static_cast<destination_owner*>(&r)};
  peers_.link_to(u.peer).redirect_destination(static_cast<destination_owner*>(&u), whole);
  recycle(u);
}

// Drops data frames for `u` from now on.
void endpoint::stop_arriving(unexpected& u) noexcept {
  transfer_ids_.erase(std::exchange(u.transfer_id, 0));
  if (!peers_.gone(u.peer))
    peers_.link_to(u.peer).redirect_destination(static_cast<destination_owner*>(&u), destination_buffer{});
  u.complete = true;
}

// Offers a message whose receive gave it up: the first posted receive that accepts it gets it, or it waits in
// its place.
void endpoint::offer(unexpected& u) noexcept {
  if (match::posted_receive* posted = matcher_.put_back(u)) {
    auto& r = static_cast<receive&>(*posted);
    if (take_unexpected(r, u)) finish(r);
    return;
  }
  if (u.head.kind == frame_kind::rts) unmatched_rts_.push_back(u);
  answer_probes(u);
}

// Discards a message that will not come, or not completely.
void endpoint::discard(unexpected& u) noexcept {
  matcher_.discard(u);
  if (u.transfer_id != 0) stop_arriving(u);
  recycle(u);
}

// ---- ended by the other side ----

void endpoint::end_cancel(int peer, const frame& head) noexcept {
  if (head.other_transfer_id == 0) {
    for (unexpected* u = unmatched_rts_.front(); u != nullptr; u = unmatched_rts_.after(*u)) {
      if (u->peer != peer || u->head.transfer_id != head.transfer_id) continue;
      discard(*u);
      return;
    }
    return;
  }
  const transfer_id_table::named is = transfer_ids_.find_any(head.other_transfer_id);
  if (is.kept != nullptr && is.kept->peer == peer) discard(*is.kept);
  receive* const r = is.receiving;
  // For a receive of a collective, the sender's communicator has failed, and its next frame says why.
  if (r == nullptr || r->peer != peer || r->expected != none) return;
  if (r->received == 0) {
    wait_again(*r);
    return;
  }
  end_early(*r, errc::cancelled,
            fmt::format("{} took back the message while it was being received", peers_.describe(peer)),
            false);
}

// Its message was taken back before any of it came: the receive waits as if it had never been matched.
void endpoint::wait_again(receive& r) noexcept {
  transfer_ids_.erase(std::exchange(r.transfer_id, 0));
  peers_.link_to(r.peer).redirect_destination(static_cast<destination_owner*>(&r), destination_buffer{});
  r.peer = -1;
  r.result = status{};
  r.at = receive::phase::posted;
  if (match::unexpected_message* m = matcher_.post_again(r))
    if (take_unexpected(r, static_cast<unexpected&>(*m))) finish(r);
}

}  // namespace tutti::p2p
