// SPDX-License-Identifier: Apache-2.0
#include "p2p/control_plane.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

namespace tutti::p2p {

void control_plane::received(int peer, const frame& head, std::span<const std::byte> payload) noexcept {
  try {
    if (!contexts_.is_outsider(head.context, peer)) return act_on(peer, head, payload);
    if (head.kind != frame_kind::fail && head.kind != frame_kind::tell) turn_away(peer, head.context);
  } catch (const std::bad_alloc&) {
    peers_.lose(peer, "what it says of a communicator");
  }
}

void control_plane::turn_away(int peer, std::uint32_t context) noexcept {
  send(context, peer,
       failure_message{
           errc::protocol,
           fmt::format("{} is no member of this communicator for {}: a rank that took part in making "
                       "it has sent different ranks different members",
                       peers_.describe(peer), peers_.describe(peers_.rank()))});
}

void control_plane::act_on(int peer, const frame& head, std::span<const std::byte> payload) {
  const auto ranks = static_cast<std::size_t>(peers_.size());
  switch (head.kind) {
    case frame_kind::fail:
      return failed(peer, head.context, failure_message::decode(head, payload, ranks));
    case frame_kind::agree:
      return routes_.agree(peer, head.context, agreement_message::decode(head, payload));
    case frame_kind::notice:
      contexts_.admits(peer, head);
      return;
    case frame_kind::ask:
      return asked(peer, head.context, inquiry_message::decode(head));
    case frame_kind::tell:
      if (const auto there = progress_message::decode(head, ranks)) answered(peer, head.context, *there);
      return;
    default:
      return;
  }
}

void control_plane::failed(int peer, std::uint32_t context, failure_message told) {
  if (context_owner* const owner = contexts_.owner_of(context)) return owner->failed_remotely(peer, told);
  // Of several only the first counts; which of them are from members is not known yet.
  const auto is_of = [&](const kept_failure& f) { return f.context == context && f.peer == peer; };
  if (contexts_.was_closed(context) || std::ranges::any_of(kept_failures_, is_of)) return;
  if (told.reach == extent::unmade && routes_.renounce(context)) return;
  keep(context, peer, std::move(told));
}

void control_plane::asked(int peer, std::uint32_t context, const inquiry_message& asks) noexcept {
  progress_message here;
  if (const context_owner* const owner = contexts_.owner_of(context)) {
    here = owner->where(asks.sequence);
  } else if (!contexts_.was_closed(context)) {
    here.at = progress_message::state::not_called;  // it will be opened
  } else {
    send_kept_failure(context, peer);
  }
  here.sequence = asks.sequence;
  send(context, peer, here);
}

void control_plane::answered(int peer, std::uint32_t context, const progress_message& there) noexcept {
  context_owner* const owner = contexts_.owner_of(context);
  if (owner == nullptr) return;
  owner->told(peer, there);
  if (there.at == progress_message::state::no_communicator) owner->closed_remotely(peer);
}

void control_plane::keep(std::uint32_t context, int peer, failure_message what) {
  // A peer that tells many displaces its own, not those of others.
  if (kept_failures_.size() == most_kept_failures) {
    const auto own = std::ranges::find(kept_failures_, peer, &kept_failure::peer);
    kept_failures_.erase(own != kept_failures_.end() ? own : kept_failures_.begin());
  }
  kept_failures_.push_back({context, peer, std::move(what)});
}

void control_plane::send_kept_failure(std::uint32_t context, int peer) noexcept {
  for (const kept_failure& f : kept_failures_)
    if (f.context / 2 == context / 2) send(f.context, peer, f.what);
}

void control_plane::announce_closing(std::uint32_t context, int peer) noexcept {
  send_kept_failure(context, peer);
  send(context, peer, progress_message());
}

void control_plane::tell_early_failure(std::uint32_t context, context_owner& owner) noexcept {
  const auto is_of = [context](const kept_failure& f) { return f.context == context; };
  const auto is_from_member = [&](const kept_failure& f) { return is_of(f) && owner.has_member(f.peer); };
  const auto found = std::ranges::find_if(kept_failures_, is_from_member);
  std::optional<kept_failure> f;
  if (found != kept_failures_.end()) f = std::move(*found);
  std::erase_if(kept_failures_, is_of);
  if (f) owner.failed_remotely(f->peer, f->what);
}

}  // namespace tutti::p2p
