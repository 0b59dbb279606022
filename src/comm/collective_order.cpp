// SPDX-License-Identifier: Apache-2.0
#include "comm/collective_order.hpp"

namespace tutti::comm {

collective_order::started_collective collective_order::start(const p2p::fingerprint& mine) noexcept {
  const std::uint32_t sequence = next_;
  next_ = sequence == 0x7fffffff ? 1 : sequence + 1;
  place& p = places_[sequence % remembered];
  started_collective made{.sequence = sequence};
  if (!p.started && p.sequence == sequence && p.peer >= 0 && p.print != mine) {
    made.differs_from = p.peer;
    made.theirs = p.print;
  }
  p = place{sequence, true, -1, mine};
  return made;
}

const p2p::fingerprint* collective_order::compare(int peer, std::uint32_t sequence,
                                                  const p2p::fingerprint& theirs) noexcept {
  place& p = places_[sequence % remembered];
  if (p.sequence == sequence && p.started) return p.print == theirs ? nullptr : &p.print;
  // Not started here yet. Keeps the first fingerprint seen for the place, to compare it later. If the place
  // still serves a started collective, the comparison happens where the message meets its receive.
  const auto is_from = [sequence](std::uint32_t first) { return !precedes(sequence, first); };
  if (is_from(next_) && (!p.started || is_from(p.sequence))) {
    if (!(p.sequence == sequence && p.peer >= 0)) p = place{sequence, false, peer, theirs};
  }
  return nullptr;
}

bool collective_order::is_running(std::uint32_t sequence) const noexcept {
  for (const running_collective* r = running_.front(); r != nullptr; r = running_.after(*r))
    if (r->sequence == sequence) return true;
  return false;
}

std::uint32_t collective_order::first_open(std::uint32_t also) const noexcept {
  std::uint32_t first = also != 0 ? also : next_;
  for (const running_collective* c = running_.front(); c != nullptr; c = running_.after(*c))
    if (precedes(c->sequence, first)) first = c->sequence;
  return first;
}

}  // namespace tutti::comm
