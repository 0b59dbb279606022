// SPDX-License-Identifier: Apache-2.0
#include "p2p/unexpected_queue.hpp"

#include "base/heap_use.hpp"

#include <new>
#include <utility>

namespace tutti::p2p {

// Nodes keep their memory for the next message. What is longer than this counts, and is kept up to a window.
constexpr std::size_t short_bytes = 8 * 1024;
constexpr std::size_t most_kept_bytes = eager_window;

unexpected* unexpected_queue::memory_of(std::uint64_t bytes) noexcept {
  unexpected* u = nullptr;
  try {
    u = &nodes_.take();
    if (bytes > u->capacity) {
      free_memory_of(*u);
      u->data = new std::byte[bytes];
      u->capacity = bytes;
      if (bytes > short_bytes) long_bytes_ += bytes;
      base::count_heap_use(bytes);
    }
  } catch (const std::bad_alloc&) {
    if (u != nullptr) nodes_.give_back(*u);
    return nullptr;
  }
  u->transfer_id = 0;
  u->received = 0;
  u->counted = u->held = u->lost = u->drains = u->ended = false;
  return u;
}

void unexpected_queue::recycle(unexpected& u) noexcept {
  if (u.transfer_id != 0) ids_.erase(std::exchange(u.transfer_id, 0));
  if (std::exchange(u.counted, false)) --peers_[u.peer].waiting;
  u.ended = u.drains;
  if (u.ended) return;
  if (u.capacity > short_bytes && long_bytes_ > most_kept_bytes) free_memory_of(u);
  nodes_.give_back(u);
}

void unexpected_queue::released(unexpected& u) noexcept {
  u.drains = false;
  if (u.ended) recycle(u);
}

void unexpected_queue::free_memory_of(unexpected& u) noexcept {
  if (u.capacity > short_bytes) long_bytes_ -= u.capacity;
  delete[] std::exchange(u.data, nullptr);
  u.capacity = 0;
}

void unexpected_queue::retire(unexpected& u) noexcept {
  if (u.head.kind == frame_kind::eager) peers_.give_credit(u.peer, u.head.length);
  recycle(u);
}

bool unexpected_queue::keep(unexpected& u) noexcept {
  u.from = match::envelope{u.head.context, u.peer, u.head.tag};
  try {
    name(u);
  } catch (const std::bad_alloc&) {
    return false;
  }
  matcher_.keep(u);
  probes_.answer(u);
  return true;
}

match::posted_receive* unexpected_queue::put_back(unexpected& u) noexcept {
  match::posted_receive* const posted = matcher_.put_back(u);
  if (posted != nullptr) return posted;
  name(u);
  probes_.answer(u);
  return nullptr;
}

// An rts frame. One of a message without bytes stays when its sender has gone: nothing is missing.
void unexpected_queue::name(unexpected& u) {
  if (u.head.kind == frame_kind::rts && u.head.length > 0 && u.transfer_id == 0)
    u.transfer_id = ids_.insert(u);
}

void unexpected_queue::stop_arriving(unexpected& u) noexcept {
  if (peers_[u.peer].arriving == &u) peers_[u.peer].arriving = nullptr;
  if (!peers_.gone(u.peer))
    u.drains = peers_.link_to(u.peer).redirect_destination(static_cast<destination_owner*>(&u), {}) ==
               redirect_result::drains;
}

void unexpected_queue::discard(unexpected& u) noexcept {
  matcher_.discard(u);
  if (u.transfer_id != 0) stop_arriving(u);
  if (!u.held) return recycle(u);
  ids_.erase(std::exchange(u.transfer_id, 0));
  u.lost = true;
}

void unexpected_queue::discard_rts(int peer, std::uint64_t transfer_id) noexcept {
  ids_.for_each([&](destination_owner& owner) {
    if (owner.peer != peer || owner.is != destination_owner::kind::unexpected) return;
    auto& u = static_cast<unexpected&>(owner);
    if (u.head.kind == frame_kind::rts && u.head.transfer_id == transfer_id) discard(u);
  });
}

void unexpected_queue::drop(std::uint32_t context) noexcept {
  matcher_.take_unexpected(context,
                           [this](match::unexpected_message& m) { drop(static_cast<unexpected&>(m)); });
}

void unexpected_queue::drop(std::uint32_t context, int peer) noexcept {
  matcher_.take_unexpected(context, [this, peer](match::unexpected_message& m) {
    auto& u = static_cast<unexpected&>(m);
    u.peer == peer ? drop(u) : matcher_.keep(u);
  });
}

void unexpected_queue::drop(unexpected& u) noexcept {
  if (u.transfer_id == 0 && peers_[u.peer].arriving != &u) return retire(u);
  stop_arriving(u);
  recycle(u);
}

// ---- probes ----

bool probes::start(probe& p, std::uint32_t context, int source, int tag) noexcept {
  p.wanted = match::envelope{context, source, tag};
  if (match::unexpected_message* m = matcher_.find(p.wanted)) {
    find_message(p, static_cast<unexpected&>(*m));
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

void probes::find_message(probe& p, unexpected& u) noexcept {
  p.result = status{u.peer, u.head.tag, u.head.length};
  if (!p.takes) return;
  matcher_.discard(u);
  u.held = true;
  p.taken = &u;
}

void probes::answer(unexpected& u) noexcept {
  if (message_taker* const taker = contexts_.taker_of(u.from.context)) [[unlikely]] {
    matcher_.discard(u);
    u.held = true;
    return taker->take(u);
  }
  const auto fits = [&u](const probe& p) {
    return p.wanted.context == u.from.context && (p.wanted.source < 0 || p.wanted.source == u.from.source) &&
           (p.wanted.tag == any_tag || p.wanted.tag == u.from.tag);
  };
  const auto complete_if = [&](bool takes) {
    waiting_.for_each([&](probe& p) {
      if (p.takes != takes || u.held || !fits(p)) return;
      find_message(p, u);
      static_cast<base::list_hook<probe_tag>&>(p).unlink();
      stop_waiting(engine_, p);
      engine_.complete(p);
    });
  };
  complete_if(true);
  complete_if(false);
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
