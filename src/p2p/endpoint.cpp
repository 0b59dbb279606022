// SPDX-License-Identifier: Apache-2.0
#include "p2p/endpoint.hpp"

#include "base/heap_use.hpp"
#include "base/little_endian.hpp"
#include "base/text.hpp"
#include "flight/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace tutti::p2p {

using transport::destination_buffer;
using transport::frame;
using transport::frame_kind;

// Unexpected messages up to this size keep their memory when their node is reused.
constexpr std::size_t kept_unexpected_bytes = 8 * 1024;

constexpr std::size_t most_kept_failures = 96;
// Frames of the protocol itself that can leave even when memory has run out.
constexpr std::size_t controls_in_reserve = 16;

// What one peer may have sent eagerly and not have been credited for; bounds the memory of unexpected
// messages.
constexpr std::uint64_t eager_window = 2 * 1024 * 1024;

// A frame that belongs to no send: it is kept here until the link has let go of it.
struct endpoint::control : transport::outgoing {
  endpoint* owner = nullptr;
  std::vector<std::byte> payload_bytes;
};

endpoint::endpoint(core::engine& engine, router& routes, int rank, int size, transfer_id_table transfer_ids)
    : engine_(engine),
      routes_(routes),
      rank_(rank),
      transfer_ids_(std::move(transfer_ids)),
      peers_(static_cast<std::size_t>(size)),
      closed_(static_cast<std::uint32_t>(size)) {
  kept_failures_.reserve(most_kept_failures);
  controls_.reserve(2 * controls_in_reserve);
  while (controls_.size() < controls_in_reserve)
    if (!more_controls()) throw std::bad_alloc();
}

endpoint::~endpoint() {
  for (const auto& u : unexpected_nodes_) delete[] u->data;
}

endpoint_usage endpoint::usage() const noexcept {
  endpoint_usage now;
  now.posted = matcher_.posted_count();
  now.unexpected = unexpected_nodes_.size() - free_unexpected_.size();
  now.transfer_ids = transfer_ids_.in_use();
  now.controls = controls_.size() - free_controls_.size();
  return now;
}

void endpoint::open_context(std::uint32_t context, context_owner& owner) {
  to_tell_.reserve(contexts_.size() + 1);
  const auto entry = contexts_.emplace(context, open{&owner, -1, {}}).first;
  try {
    matcher_.open_context(context, static_cast<int>(peers_.size()));
  } catch (...) {
    contexts_.erase(entry);
    throw;
  }
}

void endpoint::close_context(std::uint32_t context) noexcept {
  const std::string why = base::error_text([] { return std::string("the communicator was closed"); });
  fail_posted(context, errc::shut_down, why);
  end_probes([context](const probe& p) { return p.wanted.context == context; }, errc::shut_down, why);
  drop_unexpected(context);
  matcher_.close_context(context);
  if (const auto entry = contexts_.find(context); entry != contexts_.end()) {
    closings_ -= entry->second.closed_by.size();
    contexts_.erase(entry);
  }
  remember_closed(context);
}

void endpoint::renounce_context(std::uint32_t context) noexcept {
  drop_unexpected(context);
  remember_closed(context);
}

void endpoint::drop_unexpected(std::uint32_t context) noexcept {
  matcher_.take_unexpected(context, [this](match::unexpected_message& m) {
    auto& u = static_cast<unexpected&>(m);
    if (u.transfer_id != 0) stop_arriving(u);
    // Otherwise the link still writes to it: end() or the link's end retires it.
    if (u.complete) retire(u);
  });
}

void endpoint::remember_closed(std::uint32_t context) noexcept {
  try {
    closed_.add(context);
  } catch (const std::bad_alloc&) {
    // Forgotten: what still comes is kept until the world ends.
  }
}

// ---- sending ----

bool endpoint::start(send& s, std::uint32_t context, int peer, int tag, const void* data, std::size_t bytes,
                     const fingerprint& part_of) noexcept {
  ++counters_.sends;
  s.peer = peer;
  s.through = this;
  s.data = static_cast<const std::byte*>(data);
  s.bytes = bytes;
  peer_state& other = state_of(peer);
  if (other.why != errc::success) {
    s.set_failure(other.why, other.text);
    s.at = send::phase::done;
    return true;
  }
  if (is_closed_by(context, peer)) {
    set_gone(s, context, peer);
    s.at = send::phase::done;
    return true;
  }
  other.in_touch = true;
  transport::link* found = nullptr;
  bool short_enough = false;
  try {
    found = &routes_.link_to(peer);
    short_enough = found->sends_eagerly(data, bytes);
    if (!short_enough || other.eager_out + cost_of(bytes) > eager_window)
      s.transfer_id = transfer_ids_.insert(s);
  } catch (const std::bad_alloc&) {
    s.set_failure(errc::resources,
                  base::error_text([] { return std::string("out of memory; nothing was sent"); }));
    s.at = send::phase::done;
    return true;
  }
  transport::link& link = *found;
  other.link = found;
  ++other.counters.sends;
  other.counters.bytes_sent += bytes;
  s.head = frame{};
  s.head.context = context;
  s.head.tag = tag;
  s.head.length = bytes;
  s.head.fingerprint = part_of;
  s.payload = s.data;
  s.progress = 0;
  s.shown = 0;
  s.done = &sent;
  if (s.transfer_id == 0) {
    ++counters_.eager;
    other.eager_out += cost_of(bytes);
    s.head.kind = frame_kind::eager;
    s.at = send::phase::queued;
    if (link.submit(s)) {
      s.at = send::phase::done;
      return true;
    }
  } else {
    ++counters_.rendezvous;
    if (short_enough) ++other.counters.without_credit;
    s.head.kind = frame_kind::rts;
    s.head.transfer_id = s.transfer_id;
    s.at = send::phase::rts_sent;
    link.submit(s);
  }
  engine_.begin_wait();
  return false;
}

bool endpoint::send_now(std::uint32_t context, int peer, int tag, const void* data,
                        std::size_t bytes) noexcept {
  peer_state& other = state_of(peer);
  transport::link* const link = other.link;
  if (link == nullptr || closings_ != 0 || !link->sends_eagerly(data, bytes) ||
      other.eager_out + cost_of(bytes) > eager_window)
    return false;
  frame head;
  head.context = context;
  head.tag = tag;
  head.length = bytes;
  if (!link->send_now(head, static_cast<const std::byte*>(data))) return false;
  ++counters_.sends;
  ++counters_.eager;
  ++other.counters.sends;
  other.counters.bytes_sent += bytes;
  other.eager_out += cost_of(bytes);
  return true;
}

// The link has let go of a send's frame.
void endpoint::sent(transport::outgoing& o, bool ok) noexcept {
  auto& s = static_cast<send&>(o);
  endpoint& self = *s.through;
  if (!ok) {
    if (s.at != send::phase::queued || s.transfer_id != 0) return;
    // closed() follows with the reason, unless this rank has broken off the connection itself.
    const peer_state& other = self.state_of(s.peer);
    if (other.why == errc::success) {
      self.returned_.push_back(s);
    } else {
      self.fail(s, other.why, other.text);
    }
    return;
  }
  if (s.at == send::phase::queued || s.at == send::phase::streaming) self.finish(s);
}

void endpoint::end_cts(int peer, const frame& head) noexcept {
  send* s = transfer_ids_.find_send(head.transfer_id);
  if (s == nullptr || s->peer != peer || s->at != send::phase::rts_sent) {
    // Taken back meanwhile: the receiver must stop waiting for it.
    frame answer;
    answer.kind = frame_kind::cancel;
    answer.context = head.context;
    answer.transfer_id = head.transfer_id;
    answer.other_transfer_id = head.other_transfer_id;
    post_control(peer, answer);
    return;
  }
  transport::link& link = routes_.link_to(peer);
  link.cancel(*s);  // the rts frame: it is asked for, and not to be read any more
  const std::uint32_t context = s->head.context;
  s->head = frame{};
  s->head.kind = frame_kind::data;
  s->head.context = context;
  s->head.length = s->bytes;
  s->head.transfer_id = head.other_transfer_id;
  s->payload = s->data;
  s->progress = 0;
  s->at = send::phase::streaming;
  if (link.submit(*s)) finish(*s);
}

// The receiver does not want the announced message, or has read it.
void endpoint::end_answer(int peer, const frame& head) noexcept {
  send* s = transfer_ids_.find_send(head.transfer_id);
  if (s == nullptr || s->peer != peer || s->at != send::phase::rts_sent) return;
  routes_.link_to(peer).cancel(*s);
  finish(*s);
}

void endpoint::finish(send& s) noexcept {
  if (s.transfer_id != 0) transfer_ids_.erase(s.transfer_id);
  s.transfer_id = 0;
  s.at = send::phase::done;
  stop_waiting(s);
  engine_.complete(s);
}

void endpoint::stop_waiting(core::completion& a) noexcept {
  static_cast<base::list_hook<core::waiting_tag>&>(a).unlink();
  engine_.end_wait();
}

bool endpoint::more_controls() noexcept {
  try {
    free_controls_.reserve(controls_.size() + 1);
    controls_.push_back(std::make_unique<control>());
    base::count_heap_use(sizeof(control));
  } catch (const std::bad_alloc&) {
    return false;
  }
  free_controls_.push_back(controls_.back().get());
  return true;
}

void endpoint::post_control(int peer, frame head, std::vector<std::byte> payload) noexcept {
  peer_state& to = state_of(peer);
  if (to.why != errc::success || to.lost) return;
  transport::link* link = nullptr;
  try {
    link = &routes_.link_to(peer);
  } catch (const std::bad_alloc&) {
    return;  // nothing has been exchanged with it yet, and nothing depends on this
  }
  to.in_touch = true;
  // Ahead of need, so that there are some left when there is no memory for more.
  if (free_controls_.size() < controls_in_reserve / 2) more_controls();
  if (free_controls_.empty()) return lose(peer, "a frame of the protocol");
  control* const c = free_controls_.back();
  free_controls_.pop_back();
  c->owner = this;
  c->payload_bytes = std::move(payload);
  const bool carries = head.kind == frame_kind::fail || head.kind == frame_kind::agree;
  if (carries) head.length = c->payload_bytes.size();
  c->head = head;
  c->payload = c->payload_bytes.data();
  c->progress = 0;
  c->done = [](transport::outgoing& o, bool) noexcept {
    auto& done = static_cast<control&>(o);
    done.owner->free_controls_.push_back(&done);
  };
  if (link->submit(*c)) free_controls_.push_back(c);
}

void endpoint::lose(int peer, const char* what) noexcept {
  peer_state& s = state_of(peer);
  if (s.why != errc::success || std::exchange(s.lost, true)) return;
  std::string text = base::error_text([&] {
    return fmt::format("out of memory for {}, so the connection to {} was broken off", what,
                       routes_.describe(peer));
  });
  try {
    routes_.link_to(peer).give_up(errc::resources, std::move(text));
  } catch (const std::bad_alloc&) {
    s.lost = false;  // there is no connection yet
  }
}

// The reach of a failure stands beside its reason. The payload of a fail frame: the first collective that
// fails, how many ranks have failed, these ranks, each of 4 bytes, and the text.
constexpr std::int32_t reaches_children = 0x100;
constexpr std::size_t most_failed_told = 4096;
constexpr std::size_t longest_text_told = 4000;

void endpoint::send_failure(std::uint32_t context, int peer, const failure_notice& what) noexcept {
  frame head;
  head.kind = frame_kind::fail;
  head.context = context;
  head.tag = static_cast<std::int32_t>(what.why) | (what.reach == extent::children ? reaches_children : 0);
  const std::span<const int> failed = what.failed.first(std::min(what.failed.size(), most_failed_told));
  const std::size_t text_bytes = std::min(what.text.size(), longest_text_told);
  std::vector<std::byte> payload;
  try {
    payload.resize(4 * (2 + failed.size()) + text_bytes);
    auto* at = reinterpret_cast<std::uint8_t*>(payload.data());
    base::put_little_endian(at, what.first);
    base::put_little_endian(at += 4, static_cast<std::uint32_t>(failed.size()));
    for (const int rank : failed) base::put_little_endian(at += 4, static_cast<std::uint32_t>(rank));
    std::memcpy(at + 4, what.text.data(), text_bytes);
  } catch (const std::bad_alloc&) {
    // Without a payload it still says that it has failed.
  }
  post_control(peer, head, std::move(payload));
}

void endpoint::agree(std::uint32_t context, int peer, std::uint32_t round,
                     std::vector<std::byte> payload) noexcept {
  frame head;
  head.kind = frame_kind::agree;
  head.context = context;
  head.tag = static_cast<std::int32_t>(round);
  post_control(peer, head, std::move(payload));
}

void endpoint::post_nothing(int peer) noexcept {
  frame nothing;
  nothing.kind = frame_kind::credit;
  post_control(peer, nothing);
}

void endpoint::get_in_touch(int peer) noexcept {
  if (!in_touch(peer)) post_nothing(peer);
}

// A frame that was sent does not do: it may have been taken back before there was a connection.
void endpoint::meet(int peer) noexcept {
  if (!state_of(peer).heard) post_nothing(peer);
}

void endpoint::give_notices(std::uint32_t context, std::uint32_t sequence,
                            const fingerprint& part_of) noexcept {
  int last = rank_;  // they come by source
  matcher_.visit_posted(context, [&](const match::posted_receive& r) {
    if (r.wanted.tag != static_cast<std::int32_t>(sequence) || r.wanted.source == rank_) return;
    if (r.wanted.source == last) return;
    last = r.wanted.source;
    give_notice(context, last, sequence, part_of);
  });
}

void endpoint::give_notice(std::uint32_t context, int peer, std::uint32_t sequence,
                           const fingerprint& part_of) noexcept {
  frame head;
  head.kind = frame_kind::notice;
  head.context = context;
  head.tag = static_cast<std::int32_t>(sequence);
  head.fingerprint = part_of;
  post_control(peer, head);
}

// ---- where others are ----

void endpoint::ask(std::uint32_t context, int peer, std::uint32_t sequence) noexcept {
  frame head;
  head.kind = frame_kind::ask;
  head.context = context;
  head.tag = static_cast<std::int32_t>(sequence);
  post_control(peer, head);
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
  collective_progress here;
  if (owner != contexts_.end()) {
    here = owner->second.owner->where(static_cast<std::uint32_t>(head.tag));
  } else if (!was_closed(head.context)) {
    here.at = collective_progress::state::not_called;  // to be opened
  } else {
    send_kept_failure(head.context, peer);
  }
  frame answer;
  answer.kind = frame_kind::tell;
  answer.context = head.context;
  answer.tag = head.tag;
  answer.transfer_id = static_cast<std::uint64_t>(here.at);
  answer.other_transfer_id = here.last;
  answer.fingerprint = here.print;
  answer.length = static_cast<std::uint64_t>(here.waits_for) + 1;
  post_control(peer, answer);
}

void endpoint::end_tell(int peer, const frame& head) noexcept {
  const auto owner = contexts_.find(head.context);
  if (owner == contexts_.end() ||
      head.transfer_id > static_cast<std::uint64_t>(collective_progress::state::no_communicator))
    return;
  collective_progress there;
  there.at = static_cast<collective_progress::state>(head.transfer_id);
  there.last = head.other_transfer_id;
  there.print = head.fingerprint;
  if (head.length > 0 && head.length <= peers_.size()) there.waits_for = static_cast<int>(head.length) - 1;
  context_owner& told = *owner->second.owner;
  told.told(peer, static_cast<std::uint32_t>(head.tag), there);
  if (there.at == collective_progress::state::no_communicator) told.closed_remotely(peer);
}

void endpoint::keep_failure(std::uint32_t context, const failure_notice& what) noexcept {
  try {
    kept_failure f{context, rank_, what.why, what.text, what.reach, {}, what.first};
    f.failed.assign(what.failed.begin(), what.failed.end());
    keep_failure(std::move(f));
  } catch (const std::bad_alloc&) {
    // Whoever asks hears only that the communicator is closed.
  }
}

void endpoint::keep_failure(kept_failure f) noexcept {
  if (kept_failures_.size() == most_kept_failures) kept_failures_.erase(kept_failures_.begin());
  kept_failures_.push_back(std::move(f));
}

void endpoint::send_kept_failure(std::uint32_t context, int peer) noexcept {
  for (const kept_failure& f : kept_failures_)
    if (f.context / 2 == context / 2)
      send_failure(f.context, peer, {f.why, f.text, f.reach, f.failed, f.first});
}

void endpoint::announce_closing(std::uint32_t context, int peer) noexcept {
  send_kept_failure(context, peer);
  frame head;
  head.kind = frame_kind::tell;
  head.context = context;
  head.transfer_id = static_cast<std::uint64_t>(collective_progress::state::no_communicator);
  post_control(peer, head);
}

void endpoint::closed_by(std::uint32_t context, int peer) noexcept {
  const auto entry = contexts_.find(context);
  if (entry == contexts_.end() || is_closed_by(entry->second, peer)) return;
  open& o = entry->second;
  try {
    o.closed_by.push_back(peer);
  } catch (const std::bad_alloc&) {
    return;  // what waits for it does so until its timeout
  }
  ++closings_;
  const auto end_receive = [&](match::posted_receive& posted) {
    auto& r = static_cast<receive&>(posted);
    set_gone(r, context, peer);
    finish(r);
  };
  matcher_.take_posted_from(context, peer, end_receive);
  const bool nobody = nobody_left(o) >= 0;
  if (nobody) matcher_.take_posted_from(context, match::any_source, end_receive);
  const std::string text = base::error_text([&] { return o.owner->closed_text(peer); });
  end_probes(
      [&](const probe& p) {
        return p.wanted.context == context && (p.wanted.source == peer || (p.wanted.source < 0 && nobody));
      },
      errc::peer_left, text);
  transfer_ids_.for_each([&](const transfer_id_table::named& is) {
    send* const s = is.sending;
    if (s != nullptr && s->peer == peer && s->head.context == context && s->at == send::phase::rts_sent)
      fail(*s, errc::peer_left, text);
  });
}

void endpoint::set_gone(core::completion& a, std::uint32_t context, int peer) noexcept {
  const peer_state& g = state_of(peer);
  if (g.why != errc::success) return a.set_failure(g.why, g.text);
  const context_owner& owner = *contexts_.find(context)->second.owner;
  a.set_failure(errc::peer_left, base::error_text([&] { return owner.closed_text(peer); }));
}

bool endpoint::waiting_message(std::uint32_t context, int source, status& found) noexcept {
  const match::unexpected_message* const m = matcher_.find(match::envelope{context, source, any_tag});
  if (m == nullptr) return false;
  const auto& u = static_cast<const unexpected&>(*m);
  found = status{u.peer, u.head.tag, u.head.length};
  return true;
}

// ---- receiving ----

bool endpoint::start(receive& r, std::uint32_t context, int source, int tag, void* data, std::size_t capacity,
                     const fingerprint& part_of) noexcept {
  ++counters_.receives;
  r.data = static_cast<std::byte*>(data);
  r.capacity = capacity;
  r.expected = part_of;
  r.received = 0;
  r.lost = false;
  r.wanted = match::envelope{context, source, tag};
  if (match::unexpected_message* m = matcher_.post(r)) {
    auto& u = static_cast<unexpected&>(*m);
    if (take_unexpected(r, u)) {
      r.at = receive::phase::done;
      return true;
    }
    engine_.begin_wait();
    return false;
  }
  if (const int gone = gone_source(context, source); gone >= 0) {
    matcher_.cancel(r);
    set_gone(r, context, gone);
    r.at = receive::phase::done;
    return true;
  }
  r.at = receive::phase::posted;
  engine_.begin_wait();
  return false;
}

void endpoint::note_message(receive& r, int peer, const frame& head) noexcept {
  r.peer = peer;
  r.result.source = peer;
  r.result.tag = head.tag;
  r.result.bytes = head.length;
  // All parts of a collective know how long they are.
  const bool fits = head.length == r.capacity || (head.length < r.capacity && r.expected == fingerprint{});
  if (!fits || head.fingerprint != r.expected) note_misfit(r, peer, head);
}

// It is not what the receive is for: says in which way.
void endpoint::note_misfit(receive& r, int peer, const frame& head) noexcept {
  if (head.length > r.capacity)
    r.set_failure(errc::truncated, base::error_text([&] {
                    return fmt::format(
                        "a message of {} bytes from {} with tag {} came for a receive buffer of {} bytes; "
                        "nothing was written past its end: make the buffer at least as long as the message",
                        head.length, routes_.describe(peer), head.tag, r.capacity);
                  }));
  // Only element counts that differ by rank can disagree.
  static constexpr fingerprint none{};
  if (r.expected != none && head.length != r.capacity)
    r.set_failure(
        errc::mismatch, base::error_text([&] {
          return fmt::format(
              "{} sent {} bytes where {} expects {}: the element counts that the ranks gave for this "
              "block differ",
              routes_.describe(peer), head.length, routes_.describe(rank_), r.capacity);
        }));
  // Most differences are found when the first frame comes (admit); here are those of ranks far ahead of this
  // one.
  if (head.fingerprint != r.expected) {
    const auto owner = contexts_.find(head.context);
    if (owner != contexts_.end())
      r.set_failure(errc::mismatch, base::error_text([&] {
                      return owner->second.owner->mismatch_text(peer, static_cast<std::uint32_t>(head.tag),
                                                                r.expected, head.fingerprint);
                    }));
  }
}

// A kept message meets its receive. True: the receive is complete.
bool endpoint::take_unexpected(receive& r, unexpected& u) noexcept {
  note_message(r, u.peer, u.head);
  if (u.head.kind == frame_kind::rts) {
    if (peer_gone(u.peer)) {
      r.set_failure(state_of(u.peer).why, state_of(u.peer).text);
      recycle(u);
      return true;
    }
    clear_to_send(r, u.peer, u.head);
    if (r.failure() == errc::resources) {
      static_cast<base::list_hook<rts_tag>&>(u).unlink();
      offer(u);
    } else {
      recycle(u);
    }
    return r.at == receive::phase::done;
  }
  if (u.transfer_id != 0) {
    if (r.failure() != errc::success) {
      stop_arriving(u);
      recycle(u);
      return true;
    }
    take_over(r, u);
    return false;
  }
  if (!u.complete) {
    u.claimed_by = &r;
    r.claimed = &u;
    r.at = receive::phase::claiming;
    return false;
  }
  const std::size_t taken = std::min<std::size_t>(u.head.length, r.capacity);
  if (taken > 0) std::memcpy(r.data, u.data, taken);
  retire(u);
  return true;
}

// Has the link fetch the announced message, or asks for it. Without memory for that the receive fails with
// errc::resources, and the message is to wait for another. One that would not fit is refused, and of one
// without bytes there is nothing to ask for (no data frame would ever end it): then the receive is done at
// once, and the sender told so.
void endpoint::clear_to_send(receive& r, int peer, const frame& rts) noexcept {
  frame answer;
  answer.context = rts.context;
  answer.transfer_id = rts.transfer_id;
  if (r.failure() != errc::success || rts.length == 0) {
    answer.kind = frame_kind::refuse;
    r.at = receive::phase::done;
  } else {
    try {
      r.transfer_id = transfer_ids_.insert(r);
    } catch (const std::bad_alloc&) {
      r.set_failure(errc::resources, base::error_text([] {
                      return std::string("out of memory; the message waits for another receive");
                    }));
      r.at = receive::phase::done;
      return;
    }
    r.at = receive::phase::cts_sent;
    if (routes_.link_to(peer).fetch(rts, r.transfer_id)) {
      ++counters_.fetched;
      return;
    }
    answer.kind = frame_kind::cts;
    answer.other_transfer_id = r.transfer_id;
  }
  post_control(peer, answer);
}

bool endpoint::admitted_to_collective(int peer, const frame& head) noexcept {
  const auto owner = contexts_.find(head.context);
  return owner == contexts_.end() ||
         owner->second.owner->admit(peer, static_cast<std::uint32_t>(head.tag), head.fingerprint);
}

destination_buffer endpoint::begin(int peer, const frame& head) noexcept {
  peer_state& from = state_of(peer);
  from.in_touch = true;
  from.heard = true;
  if (from.lost) [[unlikely]]
    return {};
  switch (head.kind) {
    case frame_kind::eager:
      return begin_eager(peer, head);
    case frame_kind::data:
      return begin_data(peer, head);
    case frame_kind::fail:
    case frame_kind::agree: {
      unexpected* const u = memory_of(head.length);
      if (u == nullptr) return {};
      return destination_buffer{u->data, head.length, static_cast<destination_owner*>(u)};
    }
    default:
      return {};
  }
}

destination_buffer endpoint::begin_eager(int peer, const frame& head) noexcept {
  if (!admitted(peer, head)) return {};
  const match::envelope from{head.context, peer, head.tag};
  if (match::posted_receive* posted = matcher_.arrive(from)) {
    auto& r = static_cast<receive&>(*posted);
    note_message(r, peer, head);
    r.at = receive::phase::arriving;
    state_of(peer).arriving = &r;
    return destination_buffer{r.data, std::min<std::size_t>(head.length, r.capacity),
                              static_cast<destination_owner*>(&r)};
  }
  return keep_early(peer, head);
}

// An eager message that came before its receive.
destination_buffer endpoint::keep_early(int peer, const frame& head) noexcept {
  if (was_closed(head.context)) return {};
  unexpected* const u = memory_of(head.length);
  if (u == nullptr) {
    lose(peer, "a message that came before its receive");
    return {};
  }
  ++counters_.unexpected;
  u->head = head;
  u->peer = peer;
  u->complete = false;
  u->from = match::envelope{head.context, peer, head.tag};
  matcher_.keep(*u);
  answer_probes(*u);
  state_of(peer).arriving = u;
  return destination_buffer{u->data, head.length, static_cast<destination_owner*>(u)};
}

destination_buffer endpoint::begin_data(int peer, const frame& head) noexcept {
  const transfer_id_table::named is = transfer_ids_.find_any(head.transfer_id);
  if (unexpected* u = is.kept) {
    if (u->peer != peer || head.other_transfer_id > u->head.length) return {};
    const std::size_t left = static_cast<std::size_t>(u->head.length - head.other_transfer_id);
    return destination_buffer{u->data + head.other_transfer_id, std::min<std::size_t>(head.length, left),
                              static_cast<destination_owner*>(u)};
  }
  receive* r = is.receiving;
  if (r == nullptr || r->peer != peer || head.other_transfer_id > r->capacity) return {};
  const std::size_t room = std::min<std::size_t>(head.length, r->capacity - head.other_transfer_id);
  return destination_buffer{r->data + head.other_transfer_id, room, static_cast<destination_owner*>(r)};
}

void endpoint::end(int peer, const frame& head, const destination_buffer& where) noexcept {
  peer_state& from = state_of(peer);
  if (from.lost && where.owner == nullptr) [[unlikely]]
    return;
  switch (head.kind) {
    case frame_kind::eager:
      from.arriving = nullptr;
      ++from.counters.receives;
      from.counters.bytes_received += head.length;
      end_eager(peer, head, where);
      break;
    case frame_kind::rts:
      ++from.counters.receives;
      end_rts(peer, head);
      break;
    case frame_kind::cts:
      end_cts(peer, head);
      break;
    case frame_kind::data:
      from.counters.bytes_received += head.length;
      end_data(head, where);
      break;
    case frame_kind::cancel:
      end_cancel(peer, head);
      break;
    case frame_kind::fail:
      end_fail(peer, head, where);
      break;
    case frame_kind::agree:
      end_agree(peer, head, where);
      break;
    case frame_kind::refuse:
    case frame_kind::fin:
      end_answer(peer, head);
      break;
    case frame_kind::credit:
      from.eager_out -= std::min(from.eager_out, head.length);
      break;
    case frame_kind::notice:
      admitted(peer, head);
      break;
    case frame_kind::ask:
      end_ask(peer, head);
      break;
    case frame_kind::tell:
      end_tell(peer, head);
      break;
    case frame_kind::leave:      // the link reports it with closed()
    case frame_kind::heartbeat:  // between the links
    case frame_kind::alive:
      break;
  }
}

void endpoint::deliver(int peer, const frame& head, const std::byte* payload) noexcept {
  peer_state& from = state_of(peer);
  if (head.kind != frame_kind::eager || from.lost) return inbound::deliver(peer, head, payload);
  from.in_touch = true;
  from.heard = true;
  ++from.counters.receives;
  from.counters.bytes_received += head.length;
  if (!admitted(peer, head)) return give_credit(peer, head);
  if (match::posted_receive* posted = matcher_.arrive({head.context, peer, head.tag})) {
    auto& r = static_cast<receive&>(*posted);
    note_message(r, peer, head);
    const std::size_t taken = std::min<std::size_t>(head.length, r.capacity);
    if (taken > 0) std::memcpy(r.data, payload, taken);
    give_credit(peer, head);
    finish(r);
    return;
  }
  const destination_buffer where = keep_early(peer, head);
  if (where.owner == nullptr && from.lost) return;
  if (where.room > 0) std::memcpy(where.at, payload, where.room);
  from.arriving = nullptr;
  end_eager(peer, head, where);
}

void endpoint::end_eager(int peer, const frame& head, const destination_buffer& where) noexcept {
  auto* owner = static_cast<destination_owner*>(where.owner);
  if (owner == nullptr || owner->is == destination_owner::kind::receive) give_credit(peer, head);
  if (owner == nullptr) return;
  if (owner->is == destination_owner::kind::receive) {
    finish(*static_cast<receive*>(owner));
    return;
  }
  auto& u = *static_cast<unexpected*>(owner);
  u.complete = true;
  receive* r = u.claimed_by;
  if (r == nullptr) {
    if (!u.queued()) retire(u);  // its receive was cancelled while it arrived
    return;
  }
  const std::size_t taken = std::min<std::size_t>(u.head.length, r->capacity);
  if (taken > 0) std::memcpy(r->data, u.data, taken);
  r->claimed = nullptr;
  retire(u);
  finish(*r);
}

void endpoint::end_rts(int peer, const frame& head) noexcept {
  if (!admitted(peer, head)) return;
  const match::envelope from{head.context, peer, head.tag};
  if (match::posted_receive* posted = matcher_.arrive(from)) {
    auto& r = static_cast<receive&>(*posted);
    note_message(r, peer, head);
    clear_to_send(r, peer, head);
    if (r.failure() == errc::resources) {
      unexpected* const u = memory_for(r, frame_kind::rts, 0);
      finish(r);
      if (u == nullptr) return lose(peer, "the rts frame of a message");
      u->head = head;
      u->complete = true;
      return offer(*u);
    }
    if (r.at == receive::phase::done) finish(r);
    return;
  }
  if (was_closed(head.context)) {
    if (head.fingerprint == fingerprint{}) return announce_closing(head.context, peer);
    frame answer;
    answer.kind = frame_kind::refuse;
    answer.context = head.context;
    answer.transfer_id = head.transfer_id;
    return post_control(peer, answer);
  }
  unexpected* const u = memory_of(0);
  if (u == nullptr) return lose(peer, "the rts frame of a message that came before its receive");
  ++counters_.unexpected;
  u->head = head;
  u->peer = peer;
  u->complete = true;
  u->from = from;
  unmatched_rts_.push_back(*u);
  matcher_.keep(*u);
  answer_probes(*u);
}

void endpoint::end_data(const frame& head, const destination_buffer& where) noexcept {
  if (where.owner == nullptr) return;
  auto* owner = static_cast<destination_owner*>(where.owner);
  if (owner->is == destination_owner::kind::unexpected) {
    auto& u = *static_cast<unexpected*>(owner);
    u.received += head.length;
    if (u.received < u.head.length) return;
    transfer_ids_.erase(std::exchange(u.transfer_id, 0));
    u.complete = true;
    return;
  }
  auto& r = *static_cast<receive*>(owner);
  r.received += head.length;
  if (r.recorder != nullptr) r.recorder->moved(r.record, head.length);
  if (r.received >= r.result.bytes) finish(r);
}

void endpoint::end_fail(int peer, const frame& head, const destination_buffer& where) noexcept {
  std::string text = base::no_error_text;
  std::vector<int> failed;
  std::uint32_t first = 0;
  if (where.owner != nullptr) {
    auto& u = *static_cast<unexpected*>(static_cast<destination_owner*>(where.owner));
    const auto* const at = reinterpret_cast<const std::uint8_t*>(u.data);
    const auto number = [&](std::size_t i) { return base::get_little_endian<std::uint32_t>(at + 4 * i); };
    const std::size_t words = head.length / 4;
    const std::size_t count = words < 2 ? 0 : std::min<std::size_t>(number(1), words - 2);
    if (words >= 2) first = number(0);
    try {
      for (std::size_t i = 2; i < 2 + count; ++i)
        if (number(i) < peers_.size()) failed.push_back(static_cast<int>(number(i)));
    } catch (const std::bad_alloc&) {
      // Then there is no memory for a text that names them, either.
    }
    const std::size_t begin = words < 2 ? 0 : 4 * (2 + count);
    base::copy_error_text(text, {reinterpret_cast<const char*>(at) + begin, head.length - begin});
    recycle(u);
  }
  const auto why = static_cast<errc>(head.tag & ~reaches_children);
  const extent reach = (head.tag & reaches_children) != 0 ? extent::children : extent::one;
  const auto owner = contexts_.find(head.context);
  if (owner != contexts_.end()) {
    owner->second.owner->failed_remotely(peer, {why, text, reach, failed, first});
    return;
  }
  if (was_closed(head.context)) return;
  keep_failure({head.context, peer, why, std::move(text), reach, std::move(failed), first});
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
  owner.failed_remotely(f.peer, {f.why, f.text, f.reach, f.failed, f.first});
}

void endpoint::finish(receive& r) noexcept {
  if (r.transfer_id != 0) transfer_ids_.erase(r.transfer_id);
  r.transfer_id = 0;
  r.at = receive::phase::done;
  stop_waiting(r);
  engine_.complete(r);
}

void endpoint::fail_posted(std::uint32_t context, errc code, const std::string& text) noexcept {
  matcher_.take_posted(context, [&](match::posted_receive& posted) {
    auto& r = static_cast<receive&>(posted);
    r.set_failure(code, text);
    finish(r);
  });
}

transport::outgoing* endpoint::returned_of(int peer) noexcept {
  transport::outgoing* o = returned_.front();
  while (o != nullptr && static_cast<send*>(o)->peer != peer) o = returned_.after(*o);
  return o;
}

// The rest of the eager frame will not come.
void endpoint::drop_arriving(int peer) noexcept {
  peer_state& g = state_of(peer);
  destination_owner* owner = std::exchange(g.arriving, nullptr);
  if (owner == nullptr) return;
  if (owner->is == destination_owner::kind::receive) {
    fail(*static_cast<receive*>(owner), g.why, g.text);
    return;
  }
  auto& u = *static_cast<unexpected*>(owner);
  if (u.claimed_by != nullptr) fail(*u.claimed_by, g.why, g.text);
  discard(u);
}

int endpoint::nobody_left(const open& o) const noexcept {
  int gone = -1;
  for (int p = 0; p < static_cast<int>(peers_.size()); ++p) {
    if (p == rank_ || !o.owner->has_member(p)) continue;
    if (!peer_gone(p) && !is_closed_by(o, p)) return -1;
    gone = p;
  }
  return in_touch(rank_) ? -1 : gone;
}

int endpoint::gone_of_any(std::uint32_t context) noexcept {
  const auto entry = contexts_.find(context);
  if (entry == contexts_.end()) return -1;
  if (const int last = nobody_left(entry->second); last >= 0) return last;
  return std::exchange(entry->second.untold, -1);
}

void endpoint::closed(int peer, errc why, std::string text) noexcept {
  peer_state& g = state_of(peer);
  if (g.why != errc::success) return;
  // It has taken leave of those that it knew. Others find its listener closed.
  if (why == errc::peer_failed && !g.heard && routes_.has_left(peer)) {
    why = errc::peer_left;
    text = base::error_text([&] { return routes_.describe(peer) + " has finished and left"; });
  }
  g.why = why;
  g.text = std::move(text);
  g.link = nullptr;
  if (why == errc::protocol) ++counters_.corrupt_frames;
  // Messages that had come whole can still be received; what was half way cannot.
  drop_arriving(peer);
  while (transport::outgoing* o = returned_of(peer)) {
    o->unlink();
    fail(*static_cast<send*>(o), g.why, g.text);
  }
  // Who leaves has ended its sends. A receive of one of which nothing has come was taken back, and the answer
  // that says so will not come any more: it waits again.
  const auto goes_on = [why](const receive& r) {
    return why == errc::peer_left && r.received == 0 && r.expected == fingerprint{};
  };
  transfer_ids_.for_each([&](const transfer_id_table::named& is) {
    if (is.sending != nullptr && is.sending->peer == peer) fail(*is.sending, g.why, g.text);
    if (is.receiving != nullptr && is.receiving->peer == peer && !goes_on(*is.receiving))
      fail(*is.receiving, g.why, g.text);
    if (is.kept != nullptr && is.kept->peer == peer) discard(*is.kept);
  });
  for (unexpected* u = unmatched_rts_.front(); u != nullptr;) {
    unexpected* next = unmatched_rts_.after(*u);
    if (u->peer == peer) discard(*u);
    u = next;
  }
  transfer_ids_.for_each([&](const transfer_id_table::named& is) {
    if (is.receiving != nullptr && is.receiving->peer == peer) wait_again(*is.receiving);
  });
  ++gone_;
  // A receive from any source goes on while a member that may send is left; a member's death is reported to
  // it at once.
  const auto ends_any = [&](const open& o) {
    return o.owner->has_member(peer) && (why != errc::peer_left || nobody_left(o) >= 0);
  };
  for (auto& [context, entry] : contexts_) {
    bool told = false;
    const auto end_receive = [&](match::posted_receive& posted) {
      auto& r = static_cast<receive&>(posted);
      told = told || r.wanted.source < 0;
      r.set_failure(g.why, g.text);
      finish(r);
    };
    matcher_.take_posted_from(context, peer, end_receive);
    if (!ends_any(entry)) continue;
    matcher_.take_posted_from(context, match::any_source, end_receive);
    if (!told && why != errc::peer_left) entry.untold = peer;
  }
  end_probes(
      [&](const probe& p) {
        if (p.wanted.source >= 0) return p.wanted.source == peer;
        const auto entry = contexts_.find(p.wanted.context);
        return entry != contexts_.end() && ends_any(entry->second);
      },
      g.why, g.text);
  // What they do may close some of them.
  to_tell_.clear();
  for (const auto& [context, entry] : contexts_) to_tell_.push_back(entry.owner);
  for (context_owner* owner : to_tell_) owner->peer_closed(peer, g.why, g.text);
  routes_.peer_closed(peer);
}

// ---- probing ----

bool endpoint::start(probe& p, std::uint32_t context, int source, int tag) noexcept {
  p.wanted = match::envelope{context, source, tag};
  if (const match::unexpected_message* m = matcher_.find(p.wanted)) {
    const auto& u = static_cast<const unexpected&>(*m);
    p.result = status{u.peer, u.head.tag, u.head.length};
    return true;
  }
  if (const int gone = gone_source(context, source); gone >= 0) {
    set_gone(p, context, gone);
    return true;
  }
  probes_.push_back(p);
  engine_.begin_wait();
  return false;
}

void endpoint::answer_probes(const unexpected& u) noexcept {
  const auto fits = [&u](const probe& p) {
    return p.wanted.context == u.from.context && (p.wanted.source < 0 || p.wanted.source == u.from.source) &&
           (p.wanted.tag == any_tag || p.wanted.tag == u.from.tag);
  };
  for (probe* p = probes_.front(); p != nullptr;) {
    probe* const next = probes_.after(*p);
    if (fits(*p)) {
      p->result = status{u.peer, u.head.tag, u.head.length};
      static_cast<base::list_hook<probe_tag>&>(*p).unlink();
      stop_waiting(*p);
      engine_.complete(*p);
    }
    p = next;
  }
}

template <class Ends>
void endpoint::end_probes(const Ends& ends, errc code, const std::string& text) noexcept {
  for (probe* p = probes_.front(); p != nullptr;) {
    probe* const next = probes_.after(*p);
    if (ends(*p)) fail(*p, code, text);
    p = next;
  }
}

void endpoint::release(probe& p) noexcept {
  static_cast<base::list_hook<core::ready_tag>&>(p).unlink();
  auto& hook = static_cast<base::list_hook<probe_tag>&>(p);
  if (!hook.linked()) return;
  hook.unlink();
  stop_waiting(p);
}

void endpoint::fail(probe& p, errc code, const std::string& text) noexcept {
  if (!static_cast<base::list_hook<probe_tag>&>(p).linked()) return;
  release(p);
  p.set_failure(code, text);
  engine_.complete(p);
}

// ---- memory of unexpected messages ----

void endpoint::give_credit(int peer, const frame& head) noexcept {
  peer_state& g = state_of(peer);
  g.owed += cost_of(head.length);
  if (g.owed < eager_window / 2) return;
  frame credit;
  credit.kind = frame_kind::credit;
  credit.length = std::exchange(g.owed, 0);
  post_control(peer, credit);
}

void endpoint::retire(unexpected& u) noexcept {
  if (u.head.kind == frame_kind::eager) give_credit(u.peer, u.head);
  recycle(u);
}

unexpected* endpoint::new_unexpected(std::size_t bytes) {
  if (free_unexpected_.empty()) {
    free_unexpected_.reserve(unexpected_nodes_.size() + 1);
    unexpected_nodes_.push_back(std::make_unique<unexpected>());
    base::count_heap_use(sizeof(unexpected));
    free_unexpected_.push_back(unexpected_nodes_.back().get());
  }
  unexpected* const u = free_unexpected_.back();
  if (bytes > u->capacity) {
    delete[] std::exchange(u->data, nullptr);
    u->capacity = 0;
    u->data = new std::byte[bytes];
    u->capacity = bytes;
    base::count_heap_use(bytes);
  }
  free_unexpected_.pop_back();
  u->claimed_by = nullptr;
  u->complete = false;
  u->transfer_id = 0;
  u->received = 0;
  return u;
}

// The same; null: there is none.
unexpected* endpoint::memory_of(std::uint64_t bytes) noexcept {
  try {
    return new_unexpected(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void endpoint::recycle(unexpected& u) noexcept {
  static_cast<base::list_hook<rts_tag>&>(u).unlink();
  u.claimed_by = nullptr;
  if (u.capacity > kept_unexpected_bytes) {
    delete[] u.data;
    u.data = nullptr;
    u.capacity = 0;
  }
  free_unexpected_.push_back(&u);
}

}  // namespace tutti::p2p
