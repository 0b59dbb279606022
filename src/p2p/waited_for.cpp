// SPDX-License-Identifier: Apache-2.0
// What this rank waits for. It is derived from posted operations and transfers in flight, so that messages pay
// nothing for it.
#include "p2p/endpoint.hpp"

#include <algorithm>
#include <utility>

namespace tutti::p2p {

void endpoint::mark_waited_for(std::vector<waits>& by_peer) noexcept {
  const auto mark = [&by_peer](int peer, waits how) {
    if (peer < 0 || static_cast<std::size_t>(peer) >= by_peer.size()) return;
    waits& w = by_peer[static_cast<std::size_t>(peer)];
    w = std::max(w, how);
  };
  const auto mark_source = [&](int source, const context_owner& owner) {
    if (source >= 0) return mark(source, waits::for_it);
    for (int p = 0; p < peers_.size(); ++p)
      if (owner.has_member(p)) mark(p, waits::for_any);
  };
  contexts_.for_each([&](std::uint32_t context, const context_owner& owner) {
    bool any_seen = false;
    matcher_.visit_posted(context, [&](const match::posted_receive& r) {
      if (r.wanted.source < 0 && std::exchange(any_seen, true)) return;
      mark_source(r.wanted.source, owner);
    });
  });
  probes_.for_each([&](const probe& p) {
    const context_owner* const owner = contexts_.owner_of(p.wanted.context);
    if (owner != nullptr) mark_source(p.wanted.source, *owner);
  });
  sends_.for_each([&](const send& s) { mark(s.peer, waits::for_it); });
  receive_ids_.for_each([&](const destination_owner& owner) {
    if (owner.is == destination_owner::kind::receive)
      mark(static_cast<const receive&>(owner).peer, waits::for_it);
  });
  for (int p = 0; p < peers_.size(); ++p)
    if (peers_[p].arriving != nullptr) mark(p, waits::for_it);
}

void endpoint::give_notices(std::uint32_t context, std::uint32_t sequence,
                            const fingerprint& part_of) noexcept {
  int last = rank();  // they are visited by source
  matcher_.visit_posted(context, [&](const match::posted_receive& r) {
    if (r.wanted.tag != static_cast<std::int32_t>(sequence) || r.wanted.source == rank()) return;
    if (r.wanted.source == last) return;
    last = r.wanted.source;
    control_.send(context, last, notice_message{sequence, part_of});
  });
}

int endpoint::waits_for(std::uint32_t context, std::uint32_t sequence) const noexcept {
  int found = -1;
  matcher_.visit_posted(context, [&](const match::posted_receive& r) {
    if (found < 0 && r.wanted.tag == static_cast<std::int32_t>(sequence) && r.wanted.source != rank())
      found = r.wanted.source;
  });
  return found;
}

bool endpoint::waiting_message(std::uint32_t context, int source, status& found) noexcept {
  const match::unexpected_message* m = matcher_.find(match::envelope{context, source, any_tag});
  if (m == nullptr) m = matcher_.find_outside(context, source);
  if (m == nullptr) return false;
  const auto& u = static_cast<const unexpected&>(*m);
  found = status{u.peer, u.head.tag, u.head.length};
  return true;
}

}  // namespace tutti::p2p
