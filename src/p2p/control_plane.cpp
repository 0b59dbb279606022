// SPDX-License-Identifier: Apache-2.0
// The endpoint's control plane: failures, agreements, inquiries and notices.
#include "p2p/endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::p2p {

using transport::destination_buffer;
using transport::frame;

void endpoint::post_control(int peer, const frame& head, std::vector<std::byte> payload) noexcept {
  peer_state& to = state_of(peer);
  if (to.why != errc::success || to.lost) return;
  to.in_touch = true;
  controls_.post(routes_.link_to(peer), head, std::move(payload));
}

void endpoint::lose(int peer, const char* what) noexcept {
  peer_state& s = state_of(peer);
  if (s.why != errc::success || std::exchange(s.lost, true)) return;
  std::string text = fmt::format("out of memory for {}, so the connection to {} was broken off", what,
                                 routes_.describe(peer));
  routes_.link_to(peer).give_up(errc::resources, std::move(text));
}

void endpoint::send_failure(std::uint32_t context, int peer, const failure_notice& what) noexcept {
  frame head = failure_frame(context, what);
  std::vector<std::byte> payload = payload_of(what);
  head.length = payload.size();
  post_control(peer, head, std::move(payload));
}

void endpoint::agree(std::uint32_t context, int peer, std::uint32_t round,
                     std::vector<std::byte> payload) noexcept {
  frame head = agreement_frame(context, round);
  head.length = payload.size();
  post_control(peer, head, std::move(payload));
}

void endpoint::get_in_touch(int peer) noexcept {
  if (!in_touch(peer)) post_control(peer, credit_frame(0));
}

// That a frame was sent is not enough: it may have been taken back before there was a connection.
void endpoint::meet(int peer) noexcept {
  if (!state_of(peer).heard) post_control(peer, credit_frame(0));
}

void endpoint::give_notices(std::uint32_t context, std::uint32_t sequence,
                            const fingerprint& part_of) noexcept {
  int last = rank_;  // they are visited by source
  matcher_.visit_posted(context, [&](const match::posted_receive& r) {
    if (r.wanted.tag != static_cast<std::int32_t>(sequence) || r.wanted.source == rank_) return;
    if (r.wanted.source == last) return;
    last = r.wanted.source;
    give_notice(context, last, sequence, part_of);
  });
}

void endpoint::give_notice(std::uint32_t context, int peer, std::uint32_t sequence,
                           const fingerprint& part_of) noexcept {
  post_control(peer, notice_frame(context, sequence, part_of));
}

void endpoint::ask(std::uint32_t context, int peer, std::uint32_t sequence) noexcept {
  post_control(peer, inquiry_frame(context, sequence));
}

int endpoint::waits_for(std::uint32_t context, std::uint32_t sequence) noexcept {
  int found = -1;
  matcher_.visit_posted(context, [&](const match::posted_receive& r) {
    if (found < 0 && r.wanted.tag == static_cast<std::int32_t>(sequence) && r.wanted.source != rank_)
      found = r.wanted.source;
  });
  return found;
}

void endpoint::end_ask(int peer, const frame& head) noexcept {
  const auto owner = contexts_.find(head.context);
  const auto sequence = static_cast<std::uint32_t>(head.tag);
  collective_progress here;
  if (owner != contexts_.end()) {
    here = owner->second.owner->where(sequence);
  } else if (!was_closed(head.context)) {
    here.at = collective_progress::state::not_called;  // it will be opened
  } else {
    send_kept_failure(head.context, peer);
  }
  post_control(peer, progress_frame(head.context, sequence, here));
}

void endpoint::end_tell(int peer, const frame& head) noexcept {
  const auto owner = contexts_.find(head.context);
  const auto there = progress_of(head, peers_.size());
  if (owner == contexts_.end() || !there) return;
  context_owner& told = *owner->second.owner;
  told.told(peer, static_cast<std::uint32_t>(head.tag), *there);
  if (there->at == collective_progress::state::no_communicator) told.closed_remotely(peer);
}

void endpoint::keep_failure(std::uint32_t context, const failure_notice& what) noexcept {
  told_failure kept{what.why, what.text, what.reach, {what.failed.begin(), what.failed.end()}, what.first};
  keep_failure({context, rank_, std::move(kept)});
}

void endpoint::keep_failure(kept_failure f) noexcept {
  if (kept_failures_.size() == most_kept_failures) kept_failures_.erase(kept_failures_.begin());
  kept_failures_.push_back(std::move(f));
}

void endpoint::send_kept_failure(std::uint32_t context, int peer) noexcept {
  for (const kept_failure& f : kept_failures_)
    if (f.context / 2 == context / 2) send_failure(f.context, peer, f.what.notice());
}

void endpoint::announce_closing(std::uint32_t context, int peer) noexcept {
  send_kept_failure(context, peer);
  post_control(peer, progress_frame(context, 0, collective_progress()));
}

void endpoint::end_fail(int peer, const frame& head, const destination_buffer& where) noexcept {
  std::span<const std::byte> payload;
  unexpected* u = nullptr;
  if (where.owner != nullptr) {
    u = static_cast<unexpected*>(static_cast<destination_owner*>(where.owner));
    payload = {u->data, head.length};
  }
  told_failure told = failure_of(head, payload, peers_.size());
  if (u != nullptr) recycle(*u);
  const auto owner = contexts_.find(head.context);
  if (owner != contexts_.end()) return owner->second.owner->failed_remotely(peer, told.notice());
  if (!was_closed(head.context)) keep_failure({head.context, peer, std::move(told)});
}

void endpoint::end_agree(int peer, const frame& head, const destination_buffer& where) noexcept {
  if (where.owner == nullptr) return lose(peer, "what it says of who is left");
  auto& u = *static_cast<unexpected*>(static_cast<destination_owner*>(where.owner));
  routes_.agree(peer, head.context, static_cast<std::uint32_t>(head.tag), {u.data, head.length});
  recycle(u);
}

void endpoint::tell_early_failure(std::uint32_t context, context_owner& owner) noexcept {
  const auto is_of = [context](const kept_failure& f) { return f.context == context; };
  const auto found = std::ranges::find_if(kept_failures_, is_of);
  if (found == kept_failures_.end()) return;
  const kept_failure f = std::move(*found);
  std::erase_if(kept_failures_, is_of);
  owner.failed_remotely(f.peer, f.what.notice());
}

}  // namespace tutti::p2p
