// SPDX-License-Identifier: Apache-2.0
// Receives that end early, by their owner or by the other side. The owner may reuse the buffer at once.
//
// Invariant: a receive that ends does not lose its message. The part that has come is kept as if it had come
// before its receive, in its place among the others. The next receive that accepts it goes on from there. The
// cases of a receive:
//
// - An eager frame is arriving: the link moves its destination to memory of the endpoint
//   (link::redirect_destination), with the part that has come.
// - A message was asked for by cts: it gets memory of its size, and its transfer id stands for that
//   memory from now on. So its data frames go on, and the next receive takes over both. Without memory the
//   message is lost, and the receive ends with errc::resources.
// - The link reads the message itself: it stays with its sender, its slot goes back to offered, and the next
//   receive starts again.
// - Complete but not yet reported: dropping the receive queues the message again. Cancelling it is too late
//   and reports the result.
//
// A link whose hardware still writes the buffer says so (redirect_result::drains). The receive then completes
// when it does not any more. Its message goes on in the meantime, in its new place.
//
// A receive that was cutting its message off ends with errc::truncated. A receive whose message is taken back
// before any of it came waits again in its place in the order of posting; later it ends with errc::cancelled,
// naming the sender. Later messages that other receives have been given meanwhile stay with those: only
// unmatched messages have an order to keep. Receives of collectives are the exception: their communicator
// fails, and their messages are dropped.
#include "p2p/receives.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace tutti::p2p {

void receives::release(receive& r) noexcept {
  auto& ready = static_cast<base::list_hook<core::ready_tag>&>(r);
  const bool undelivered = ready.linked();
  ready.unlink();
  const bool keep = r.expected == point_to_point;
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
    case receive::phase::draining:
      break;
    default:
      back = detach(r, keep, lost);
  }
  if (r.at == receive::phase::draining) {
    peers_.link_to(r.peer).drain_destination(static_cast<destination_owner*>(&r));
    static_cast<base::list_hook<match::posted_tag>&>(r).unlink();
    settle(r);
  }
  if (back != nullptr) offer(*back);
  // Other receives wait for it, or for a message behind it, and nothing else can tell them.
  if (lost) peers_.lose(peer, "a message whose receive ended early");
}

void receives::fail(receive& r, errc code, const std::string& text) noexcept {
  if (r.at == receive::phase::done || r.at == receive::phase::idle || r.at == receive::phase::draining)
    return;
  end_early(r, code, text, given_up(code) && r.expected == point_to_point);
}

void receives::end_early(receive& r, errc code, const std::string& text, bool keep) noexcept {
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
  if (r.at != receive::phase::draining) engine_.complete(r);
  if (back != nullptr) offer(*back);
}

void receives::drain_later(receive& r) noexcept {
  r.at = receive::phase::draining;
  draining_.push_back(r);
}

void receives::released(receive& r) noexcept {
  static_cast<base::list_hook<match::posted_tag>&>(r).unlink();
  finish(r);
}

unexpected* receives::detach(receive& r, bool keep, bool& lost) noexcept {
  unexpected* back = nullptr;
  switch (r.at) {
    case receive::phase::idle:
    case receive::phase::draining:
    case receive::phase::done:
      return nullptr;
    case receive::phase::posted:
      matcher_.cancel(r);
      break;
    case receive::phase::arriving:
    case receive::phase::cts_sent:
      if (!peers_.gone(r.peer)) back = detach_arriving(r, keep && r.failure() == errc::success, lost);
  }
  if (back != nullptr) ++counters_.given_back;
  if (r.at != receive::phase::draining) settle(r);
  return back;
}

unexpected* receives::detach_arriving(receive& r, bool keep, bool& lost) noexcept {
  transport::link& link = peers_.link_to(r.peer);
  const bool eager = r.at == receive::phase::arriving;
  frame rts;
  const bool fetched = keep && !eager && link.stop_fetching(r.transfer_id, rts);
  unexpected* const back =
      keep ? memory_for(r, eager ? frame_kind::eager : frame_kind::data, fetched ? 0 : r.result.bytes)
           : nullptr;
  lost = keep && back == nullptr;
  if (fetched && back != nullptr) back->head = rts;
  redirect_result old_place;
  if (back != nullptr && !fetched) {
    old_place = hand_over(r, *back, r.result.bytes);
  } else {
    // Without its transfer id, data in flight are dropped.
    ids_.erase(std::exchange(r.transfer_id, 0));
    old_place = link.redirect_destination(static_cast<destination_owner*>(&r), destination_buffer{});
    if (eager) peers_[r.peer].arriving = nullptr;
  }
  if (old_place == redirect_result::drains) drain_later(r);
  return back;
}

unexpected* receives::memory_for(const receive& r, frame_kind kind, std::size_t bytes) noexcept {
  unexpected* const u = unexpected_.memory_of(bytes);
  if (u == nullptr) return nullptr;
  u->head = {.kind = kind, .context = r.wanted.context, .tag = r.result.tag, .length = r.result.bytes};
  u->peer = r.peer;
  u->from = match::envelope{r.wanted.context, r.peer, r.result.tag};
  u->arrival = r.arrival;
  return u;
}

// Keeps the complete message in the buffer of `r`.
unexpected* receives::keep_whole(const receive& r) noexcept {
  unexpected* const u = memory_for(r, frame_kind::data, r.result.bytes);
  if (u == nullptr) return nullptr;
  if (r.result.bytes > 0) std::memcpy(u->data, r.data, r.result.bytes);
  ++counters_.given_back;
  return u;
}

// Offers a message whose receive gave it up: the first posted receive that accepts it gets it, or it waits in
// its place.
void receives::offer(unexpected& u) noexcept {
  match::posted_receive* const posted = unexpected_.put_back(u);
  if (posted == nullptr) return;
  auto& r = static_cast<receive&>(*posted);
  if (take(r, u)) finish(r);
}

void receives::end_cancel(int peer, const frame& head) noexcept {
  if (head.other_transfer_id == 0) return unexpected_.discard_rts(peer, head.transfer_id);
  destination_owner* const owner = ids_.find(head.other_transfer_id);
  if (owner == nullptr || owner->peer != peer) return;
  if (owner->is == destination_owner::kind::unexpected)
    return unexpected_.discard(static_cast<unexpected&>(*owner));
  auto& r = static_cast<receive&>(*owner);
  // For a receive of a collective, the sender's communicator has failed, and its next frame says why.
  if (r.expected != point_to_point) return;
  r.received == 0 && !r.matched ? wait_again(r) : end_taken_back(r);
}

void receives::end_taken_back(receive& r) noexcept {
  end_early(r, errc::cancelled,
            fmt::format("{} took back the message while it was being received", peers_.describe(r.peer)),
            false);
}

// Its message was taken back before any of it came: the receive waits as if it had never been matched.
void receives::wait_again(receive& r) noexcept {
  if (peers_.link_to(r.peer).redirect_destination(static_cast<destination_owner*>(&r), {}) ==
      redirect_result::drains)
    return end_taken_back(r);  // its buffer is not free for another message
  ids_.erase(std::exchange(r.transfer_id, 0));
  r.peer = -1;
  r.result = status{};
  r.at = receive::phase::posted;
  if (match::unexpected_message* m = matcher_.post_again(r)) {
    if (take(r, static_cast<unexpected&>(*m))) finish(r);
  } else if (const int gone = contexts_.gone_source(r.wanted.context, r.wanted.source); gone >= 0) {
    // Its end failed the receives that were posted then.
    fail_without_sender(r, gone);
    finish(r);
  }
}

void receives::peer_closed(int peer) noexcept {
  const departure& why = peers_[peer].gone;
  drop_arriving(peer);
  // A leaving rank has ended its sends. If nothing has come of a receive's message, that was taken back, and
  // the answer that says so will not come: the receive waits again.
  const auto waits_again = [&why](const receive& r) {
    return why.code == errc::peer_left && r.received == 0 && r.expected == point_to_point && !r.matched;
  };
  ids_.for_each([&](destination_owner& owner) {
    if (owner.peer != peer) return;
    if (owner.is == destination_owner::kind::unexpected) {
      unexpected_.discard(static_cast<unexpected&>(owner));
    } else if (auto& r = static_cast<receive&>(owner); !waits_again(r)) {
      fail(r, why.code, why.text);
    }
  });
  ids_.for_each([&](destination_owner& owner) {
    if (owner.peer == peer && owner.is == destination_owner::kind::receive)
      wait_again(static_cast<receive&>(owner));
  });
}

// The rest of the eager frame will not come.
void receives::drop_arriving(int peer) noexcept {
  const departure& why = peers_[peer].gone;
  destination_owner* const owner = std::exchange(peers_[peer].arriving, nullptr);
  if (owner == nullptr) return;
  if (owner->is == destination_owner::kind::receive)
    return fail(*static_cast<receive*>(owner), why.code, why.text);
  unexpected_.discard(*static_cast<unexpected*>(owner));
}

}  // namespace tutti::p2p
