// SPDX-License-Identifier: Apache-2.0
#include "p2p/probes.hpp"

namespace tutti::p2p {

bool probes::start(probe& p, std::uint32_t context, int source, int tag) noexcept {
  p.wanted = match::envelope{context, source, tag};
  if (const match::unexpected_message* m = matcher_.find(p.wanted)) {
    const auto& u = static_cast<const unexpected&>(*m);
    p.result = status{u.peer, u.head.tag, u.head.length};
    return true;
  }
  if (const int gone = contexts_.gone_source(context, source); gone >= 0) {
    const departure why = contexts_.departure_of(context, gone);
    p.set_failure(why.code, why.text);
    return true;
  }
  waiting_.push_back(p);
  engine_.begin_wait();
  return false;
}

void probes::answer(const unexpected& u) noexcept {
  const auto fits = [&u](const probe& p) {
    return p.wanted.context == u.from.context && (p.wanted.source < 0 || p.wanted.source == u.from.source) &&
           (p.wanted.tag == any_tag || p.wanted.tag == u.from.tag);
  };
  for (probe* p = waiting_.front(); p != nullptr;) {
    probe* const next = waiting_.after(*p);
    if (fits(*p)) {
      p->result = status{u.peer, u.head.tag, u.head.length};
      static_cast<base::list_hook<probe_tag>&>(*p).unlink();
      stop_waiting(engine_, *p);
      engine_.complete(*p);
    }
    p = next;
  }
}

void probes::release(probe& p) noexcept {
  static_cast<base::list_hook<core::ready_tag>&>(p).unlink();
  auto& hook = static_cast<base::list_hook<probe_tag>&>(p);
  if (!hook.linked()) return;
  hook.unlink();
  stop_waiting(engine_, p);
}

void probes::fail(probe& p, errc code, const std::string& text) noexcept {
  if (!static_cast<base::list_hook<probe_tag>&>(p).linked()) return;
  release(p);
  p.set_failure(code, text);
  engine_.complete(p);
}

}  // namespace tutti::p2p
