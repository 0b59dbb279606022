// SPDX-License-Identifier: Apache-2.0
#include "p2p/contexts.hpp"

#include <utility>

namespace tutti::p2p {

void contexts::open(std::uint32_t context, context_owner& owner) {
  int untold = -1;  // a member that had died before this rank opened it
  for (int p = 0; peers_.any_gone() && p < peers_.size(); ++p)
    if (peers_.failed(p) && owner.has_member(p)) untold = p;
  open_.emplace(context, state{&owner, untold, {}, nullptr});
}

void contexts::close(std::uint32_t context) {
  if (const auto entry = open_.find(context); entry != open_.end()) {
    closings_ -= entry->second.closed_by.size();
    open_.erase(entry);
  }
  closed_.add(context);
}

message_taker* contexts::exchange_taker(std::uint32_t context, message_taker* taker) noexcept {
  const auto entry = open_.find(context);
  if (entry == open_.end()) return nullptr;
  if (taker != nullptr) ++takers_;
  message_taker* const before = std::exchange(entry->second.taker, taker);
  if (before != nullptr) --takers_;
  return before;
}

bool contexts::admits_to_collective(int peer, const frame& head) const noexcept {
  if (head.fingerprint[0] == for_taker) return true;
  context_owner* const owner = owner_of(head.context);
  return owner == nullptr || !owner->has_member(peer) ||
         owner->admit(peer, static_cast<std::uint32_t>(head.tag), head.fingerprint);
}

bool contexts::close_by(std::uint32_t context, int peer) {
  const auto entry = open_.find(context);
  if (entry == open_.end() || is_closed_by(entry->second, peer)) return false;
  entry->second.closed_by.push_back(peer);
  ++closings_;
  return true;
}

bool contexts::is_closed_by(std::uint32_t context, int peer) const noexcept {
  const auto entry = open_.find(context);
  return entry != open_.end() && is_closed_by(entry->second, peer);
}

departure contexts::departure_of(std::uint32_t context, int peer) const {
  if (peers_.gone(peer)) return peers_[peer].gone;
  return {errc::peer_left, owner_of(context)->closed_text(peer)};
}

int contexts::last_gone(const state& s) const noexcept {
  int gone = -1;
  for (int p = 0; p < peers_.size(); ++p) {
    if (p == peers_.rank() || !s.owner->has_member(p)) continue;
    if (!peers_.gone(p) && !is_closed_by(s, p)) return -1;
    gone = p;
  }
  return peers_.in_touch(peers_.rank()) ? -1 : gone;
}

int contexts::gone_of_any(std::uint32_t context) noexcept {
  const auto entry = open_.find(context);
  if (entry == open_.end()) return -1;
  if (const int last = last_gone(entry->second); last >= 0) return last;
  return std::exchange(entry->second.untold, -1);
}

}  // namespace tutti::p2p
