// SPDX-License-Identifier: Apache-2.0
#include "base/hmac.hpp"
#include "base/little_endian.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "core/loop.hpp"
#include "transport/tcp/header.hpp"
#include "transport/ucx/quiet_work.hpp"
#include "transport/ucx/ucx_transport.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace tutti::transport::ucx {
namespace {

using abi::ucp_request_param_t;
using abi::ucs_status_t;

constexpr std::size_t rank_at = 16, number_at = 20, kind_at = 24, fields_at = 28;
static_assert(fields_at + tcp::fields_bytes == envelope_bytes);

// On the lifeline.
constexpr char question = '?';
constexpr char answer = '!';

// UCX returns all requests of an endpoint that is closed by force within a millisecond.
constexpr std::chrono::seconds patience_with_ucx(10);

// The callbacks of UCX, which are called while it works: they only note what has happened.
void parcel_sent(void* request, ucs_status_t, void* of) {
  base::ucx_library::if_open()->call.ucp_request_free(request);
  auto& p = *static_cast<parcel*>(of);
  p.of->parcel_ended(p);
}
void slice_sent(void* request, ucs_status_t, void* of) {
  base::ucx_library::if_open()->call.ucp_request_free(request);
  auto& s = *static_cast<slice*>(of);
  s.through->slice_ended(s);
}
void slice_received(void* request, ucs_status_t status, std::size_t, void* of) {
  base::ucx_library::if_open()->call.ucp_request_free(request);
  auto& a = *static_cast<arrival*>(of);
  a.from->slice_ended(a, status);
}
void endpoint_failed(void* of, abi::ucp_ep*, ucs_status_t status) {
  static_cast<ucx_link*>(of)->peer_lost(status);
}

ucp_request_param_t sending(std::uint32_t flags, ucp_request_param_t::send_callback sent, void* of) {
  ucp_request_param_t how;
  how.mask =
      ucp_request_param_t::has_callback | ucp_request_param_t::has_user_data | ucp_request_param_t::has_flags;
  how.flags = flags;
  how.callback.sent = sent;
  how.user_data = of;
  return how;
}

}  // namespace

ucx_link::ucx_link(ucx_transport& owner, int peer)
    : peer_link(owner, peer, phase::idle), owner_(owner), heartbeat_(owner.info().silence_limit) {}

// ---- connecting ----

const link_key& ucx_link::make_expected_key() {
  base::fill_random(expected_key_);
  return expected_key_;
}

std::string ucx_link::bind(const link_key& key, const std::string& address) {
  force();  // that of an earlier attempt
  key_ = key;
  has_key_ = true;
  next_sent_ = next_come_ = 0;
  answers_alone_ = 0;
  error_ = ucs_status_t::ok;
  abi::ucp_ep_params_t wanted;
  wanted.mask = abi::ucp_ep_params_t::has_address | abi::ucp_ep_params_t::has_error_mode |
                abi::ucp_ep_params_t::has_error_handler;
  wanted.address = reinterpret_cast<const abi::ucp_address*>(address.data());
  wanted.error_mode = abi::report_peer_errors;
  wanted.error_handler = endpoint_failed;
  wanted.error_argument = this;
  const ucs_status_t status = owner_.ucx().call.ucp_ep_create(owner_.worker(), &wanted, &endpoint_);
  if (status == ucs_status_t::ok) return {};
  endpoint_ = nullptr;
  return fmt::format("UCX {} on {} finds no way to {} ({})", owner_.ucx().version(),
                     owner_.describe(owner_.info().rank), owner_.describe(peer_),
                     owner_.ucx().text_of(status));
}

void ucx_link::attach(base::unique_fd lifeline) {
  tcp::set_up_connection(lifeline.get(), owner_.info().silence_limit);
  watch_ = owner_.backend().watch(lifeline.get(), *this);
  lifeline_ = std::move(lifeline);
  lifeline_ended_ = lifeline_unread_ = false;
  declined_.reset();
  at_ = phase::connected;
  owner_.note_lanes(peer_, endpoint_);
  owner_.activate(*this);
}

// ---- sending ----

void ucx_link::seal(const frame& head, envelope& into) noexcept {
  std::memcpy(into.data(), key_.data(), key_.size());
  base::put_little_endian(into.data() + rank_at, static_cast<std::int32_t>(owner_.info().rank));
  base::put_little_endian(into.data() + number_at, next_sent_++);
  base::put_little_endian(into.data() + kind_at, static_cast<std::uint32_t>(head.kind));
  tcp::encode_fields(head, into.data() + fields_at);
}

bool ucx_link::send_frame(const frame& head, const std::byte* payload) noexcept {
  if (parcels_out_ >= most_frames_in_flight) {
    ++counters.stalls;
    return false;
  }
  const auto bytes = static_cast<std::size_t>(payload_bytes(head));
  parcel& p = owner_.parcels().take();
  if (bytes > p.capacity) {
    p.capacity = std::max(bytes, eager_limit_bytes);
    p.payload.reset(new std::byte[p.capacity]);
    base::count_heap_use(p.capacity);
  }
  p.of = this;
  seal(head, p.head);
  if (bytes > 0) std::memcpy(p.payload.get(), payload, bytes);
  const ucp_request_param_t how = sending(abi::send_eager, parcel_sent, &p);
  ++parcels_out_;
  const abi::ucs_status_ptr_t request = owner_.ucx().call.ucp_am_send_nbx(
      endpoint_, message_id, p.head.data(), p.head.size(), p.payload.get(), bytes, &how);
  if (request != nullptr && !abi::is_error(request)) return true;
  parcel_ended(p);
  if (request == nullptr) return true;
  ucx_failed(abi::error_of(request));
  return false;
}

void ucx_link::parcel_ended(parcel& p) noexcept {
  if (p.capacity > eager_limit_bytes) {
    p.payload.reset();
    p.capacity = 0;
  }
  owner_.parcels().give_back(p);
  --parcels_out_;
  if (!messages_.empty() || owner_.leaving()) owner_.activate(*this);
}

bool ucx_link::send_slice(outgoing& f) noexcept {
  const frame head = next_slice(f.head, f.progress, slice_bytes);
  slice& s = owner_.slice_pool().take();
  s.through = this;
  s.of = &f;
  seal(head, s.head);
  const ucp_request_param_t how = sending(abi::send_rendezvous, slice_sent, &s);
  slices_.push_back(s);
  ++slices_out_;
  const abi::ucs_status_ptr_t request = owner_.ucx().call.ucp_am_send_nbx(
      endpoint_, message_id, s.head.data(), s.head.size(), f.payload + f.progress, head.length, &how);
  f.progress += head.length;
  if (request != nullptr && !abi::is_error(request)) return true;
  slice_ended(s);
  if (request == nullptr) return true;
  ucx_failed(abi::error_of(request));
  return false;
}

void ucx_link::slice_ended(slice& s) noexcept {
  s.unlink();
  s.of = nullptr;
  --slices_out_;
  ++ends_;
  owner_.slice_pool().give_back(s);
  owner_.activate(*this);
}

bool ucx_link::send_slices() noexcept {
  bool any = false;
  for (outgoing* f = data_.front(); f != nullptr; f = data_.after(*f))
    while (f->progress < f->head.length) {
      if (slices_out_ == slices_in_flight || !send_slice(*f)) return any;
      any = true;
    }
  return any;
}

bool ucx_link::on_the_way(const outgoing& f) const noexcept {
  for (const slice* s = slices_.front(); s != nullptr; s = slices_.after(*s))
    if (s->of == &f) return true;
  return false;
}

// Ends the data frames whose slices UCX has returned.
bool ucx_link::end_frames() noexcept {
  bool any = false;
  const auto end = [&](outgoing& f) {
    f.unlink();
    f.done(f, f.progress == f.head.length);
    any = true;
  };
  for (outgoing* f = data_.front(); f != nullptr && f->progress > 0;) {
    outgoing* const next = data_.after(*f);
    if (f->progress == f->head.length && !on_the_way(*f)) end(*f);
    f = next;
  }
  draining_.for_each([&](outgoing& f) {
    if (!on_the_way(f)) end(f);
  });
  return any;
}

bool ucx_link::submit(outgoing& f) noexcept {
  f.progress = 0;
  if (farewell_sent_ || (at_ == phase::closed && owner_.leaving())) return false;
  const bool data = f.head.kind == frame_kind::data;
  if (!data && at_ == phase::connected && messages_.empty() && send_frame(f.head, f.payload)) return true;
  (data ? data_ : messages_).push_back(f);
  if (at_ == phase::idle) {
    owner_.connect(*this);
  } else if (at_ == phase::connected && data) {
    send_slices();
    if (f.progress < f.head.length || on_the_way(f)) return false;
    f.unlink();
    return true;
  } else if (at_ == phase::connected || at_ == phase::closed) {
    owner_.activate(*this);
  }
  return false;
}

bool ucx_link::send_now(const frame& head, const std::byte* payload) noexcept {
  return at_ == phase::connected && messages_.empty() && !owner_.leaving() && send_frame(head, payload);
}

cancel_result ucx_link::cancel(outgoing& f) noexcept {
  const bool begun = f.linked() && f.head.kind == frame_kind::data && f.progress > 0;
  f.unlink();
  if (!begun) return cancel_result::gone;
  if (!on_the_way(f)) return f.progress == f.head.length ? cancel_result::leaves : cancel_result::gone;
  draining_.push_back(f);
  return cancel_result::drains;
}

bool ucx_link::drain(outgoing& f) noexcept {
  const bool ended = wait_for_slices([&] { return !on_the_way(f); });
  f.unlink();
  return ended && f.progress == f.head.length;
}

// ---- receiving ----

bool ucx_link::unseal(std::span<const std::uint8_t, envelope_bytes> from, std::size_t payload,
                      bool rendezvous, frame& head) noexcept {
  unsigned differs = 0;
  for (std::size_t i = 0; i < expected_key_.size(); ++i) differs |= from[i] ^ unsigned { expected_key_[i] };
  if (!takes() || differs != 0) return false;
  if (base::get_little_endian<std::uint32_t>(from.data() + number_at) != next_come_) {
    corrupt(
        "a frame whose number is not the next: UCX promises no order over several lanes, so leave "
        "UCX_MAX_EAGER_RAILS at 1");
    return false;
  }
  ++next_come_;
  answers_alone_ = 0;
  const auto kind = base::get_little_endian<std::uint32_t>(from.data() + kind_at);
  const char* complaint = tcp::decode_fields(kind, from.data() + fields_at, head, slice_bytes);
  if (complaint == nullptr && payload_bytes(head) != payload)
    complaint = "a frame of another length than it says";
  if (complaint == nullptr && rendezvous != (head.kind == frame_kind::data))
    complaint = "a frame of a kind that leaves by the other protocol";
  if (complaint != nullptr) corrupt(complaint);
  return complaint == nullptr;
}

void ucx_link::corrupt(const char* what) noexcept {
  fail(errc::protocol,
       fmt::format("{} sent {}; the connection was broken off. Is every rank built with the same tutti?",
                   owner_.describe(peer_), what));
}

void ucx_link::deliver(held_frame& h) noexcept {
  if (!takes()) return;
  if (h.head.kind == frame_kind::alive) return;
  if (h.head.kind == frame_kind::leave) {
    fail(errc::peer_left, fmt::format("{} has finished and left", owner_.describe(peer_)));
  } else if (owner_.leaving()) {
    return;
  } else if (h.offered != nullptr) {
    if (receive(h.head, h.offered)) h.offered = nullptr;
  } else {
    owner_.up().deliver(peer_, h.head, payload_bytes(h.head) > 0 ? h.payload.get() : nullptr);
  }
}

// Returns false if the slice is not wanted.
bool ucx_link::receive(const frame& head, void* offered) noexcept {
  const destination_buffer where = owner_.up().begin(peer_, head);
  if (!takes()) return false;
  if (where.at == nullptr || where.room == 0) {
    owner_.up().end(peer_, head, where);
    return false;
  }
  arrival& a = owner_.arrival_pool().take();
  a.from = this;
  a.head = head;
  a.where = a.place = where;
  a.redirected = a.aside = false;
  if (where.room < head.length) {  // UCX writes all of a slice
    use_own_memory(a);
  }
  start(a, offered);
  return true;
}

void ucx_link::receive_aside(held_frame& h) noexcept {
  if (!takes()) return;
  arrival& a = owner_.arrival_pool().take();
  a.from = this;
  a.head = h.head;
  a.where = {};
  a.redirected = false;
  a.aside = true;
  use_own_memory(a);
  start(a, std::exchange(h.offered, nullptr));
}

void ucx_link::use_own_memory(arrival& a) noexcept {
  a.own.reset(new std::byte[a.head.length]);
  a.place = {a.own.get(), static_cast<std::size_t>(a.head.length), nullptr};
}

void ucx_link::start(arrival& a, void* offered) noexcept {
  arriving_.push_back(a);
  ucp_request_param_t how;
  how.mask = ucp_request_param_t::has_callback | ucp_request_param_t::has_user_data;
  how.callback.received = slice_received;
  how.user_data = &a;
  const abi::ucs_status_ptr_t request =
      owner_.ucx().call.ucp_am_recv_data_nbx(owner_.worker(), offered, a.place.at, a.head.length, &how);
  if (request == nullptr) {
    slice_ended(a, ucs_status_t::ok);
  } else if (abi::is_error(request)) {
    slice_ended(a, abi::error_of(request));
  }
}

void ucx_link::slice_ended(arrival& a, ucs_status_t status) noexcept {
  a.unlink();
  ++ends_;
  a.status = status;
  if (status == ucs_status_t::ok && !a.aside) settle(a);
  owner_.note_ended(a);
}

// Copies what has come to where it belongs.
void ucx_link::settle(arrival& a) noexcept {
  const std::size_t bytes = std::min<std::size_t>(a.head.length, a.where.room);
  if (a.place.at != a.where.at && a.where.at != nullptr && bytes > 0)
    std::memcpy(a.where.at, a.place.at, bytes);
  a.own.reset();
}

void ucx_link::report(arrival& a) noexcept {
  const bool open = takes() && !owner_.leaving();
  if (open && a.status != ucs_status_t::ok) ucx_failed(a.status);
  // One look serves all that had ended before it.
  if (open && a.status == ucs_status_t::ok && (stood_after_ == ends_ || lifeline_stands())) {
    if (a.aside) {
      a.where = owner_.up().begin(peer_, a.head);
      settle(a);
    }
    owner_.up().end(peer_, a.head, a.where);
  }
  a.own.reset();
  end_redirected(a);
  owner_.arrival_pool().give_back(a);
}

// The old place of an arrival is not written any more.
void ucx_link::end_redirected(const arrival& a) noexcept {
  void* const owner = a.redirected ? a.place.owner : nullptr;
  if (owner != nullptr && !written(owner) && !owner_.leaving()) owner_.up().released(owner);
}

bool ucx_link::written(const void* owner) const noexcept {
  const auto writes = [owner](const arrival& a) { return a.redirected && a.place.owner == owner; };
  bool any = false;
  arriving_.for_each([&](const arrival& a) { any |= writes(a); });
  owner_.ended().for_each([&](const arrival& a) { any |= a.from == this && writes(a); });
  return any;
}

redirect_result ucx_link::redirect_destination(void* owner, const destination_buffer& instead) noexcept {
  auto result = redirect_result::none;
  arriving_.for_each([&](arrival& a) {
    if (a.where.owner == owner) {
      move_destination(a.where, 0, instead, a.head);
      a.redirected = true;
      result = std::max(result, redirect_result::moved);
    }
    if (a.redirected && a.place.owner == owner) result = redirect_result::drains;
  });
  // What has come, and is not reported yet.
  owner_.ended().for_each([&](arrival& a) {
    if (a.from != this || a.where.owner != owner) return;
    move_destination(a.where, static_cast<std::size_t>(a.head.length), instead, a.head);
    result = std::max(result, redirect_result::moved);
  });
  return result;
}

void ucx_link::drain_destination(void* owner) noexcept {
  const auto is_written = [&] {
    bool any = false;
    arriving_.for_each([&](const arrival& a) { any |= a.redirected && a.place.owner == owner; });
    return any;
  };
  wait_for_slices([&] { return !is_written(); });
  owner_.ended().for_each([&](arrival& a) {
    if (a.from == this && a.redirected && a.place.owner == owner) a.place.owner = nullptr;
  });
}

// ---- the lifeline, and the end ----

void ucx_link::on_ready(bool readable, bool) noexcept {
  if (readable && lifeline_) read_lifeline();
}

// Once in a turn: a peer that always sends must not keep the loop. The descriptor reports changes only, so that it is
// read until nothing is left.
void ucx_link::read_lifeline() noexcept {
  std::array<char, 4096> bytes;
  const ssize_t got = ::recv(lifeline_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  lifeline_unread_ = got > 0 || (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
  lifeline_ended_ |= !lifeline_unread_;
  owner_.activate(*this);
  if (got <= 0) return;
  const std::string_view heard(bytes.data(), static_cast<std::size_t>(got));
  if (heard.find(question) != heard.npos) {
    if (at_ == phase::connected && !owner_.leaving()) send_frame({.kind = frame_kind::alive}, nullptr);
    say(answer);
  }
  if (heard.find(answer) != heard.npos) note_answer();
}

// Each answer has been sent behind a frame over UCX.
void ucx_link::note_answer() noexcept {
  const std::chrono::milliseconds limit = owner_.info().silence_limit;
  if (limit.count() == 0 || ++answers_alone_ * tcp::heartbeat::period(limit) < limit) return;
  fail(errc::peer_failed,
       fmt::format(
           "UCX has delivered nothing from {} for {}, although its loop answers over TCP: the network "
           "that UCX uses has failed, or a rank that died has blocked the queue of UCX's shared memory "
           "to this rank (UCX_TLS). Without UCX: TUTTI_TRANSPORTS=shm,tcp on all ranks",
           owner_.describe(peer_), base::duration_text(limit)));
}

void ucx_link::say(char byte) noexcept {
  // A full buffer holds questions enough.
  static_cast<void>(::send(lifeline_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

bool ucx_link::lifeline_stands() noexcept {
  if (!lifeline_) return true;  // in the handshake
  pollfd end{lifeline_.get(), POLLRDHUP, 0};
  if (::poll(&end, 1, 0) <= 0) {
    stood_after_ = ends_;
    return true;
  }
  lifeline_ended_ = true;
  owner_.activate(*this);
  return false;
}

peer_health ucx_link::examine(const health_check& l) noexcept {
  tcp::kernel_view kernel;
  if (at_ != phase::connected || owner_.leaving() || !tcp::view_kernel(lifeline_.get(), kernel)) return {};
  if (!heartbeat_.watched()) tcp::watch_closely(lifeline_.get(), true);
  const tcp::heartbeat::finding found = heartbeat_.examine(l, kernel, false);
  if (found.ask) say(question);
  return found.health;
}

void ucx_link::rest() noexcept {
  if (heartbeat_.watched() && at_ == phase::connected) tcp::watch_closely(lifeline_.get(), false);
  heartbeat_.rest();
}

void ucx_link::peer_lost(ucs_status_t status) noexcept {
  error_ = status;
  owner_.activate(*this);
}

void ucx_link::ucx_failed(ucs_status_t status) noexcept {
  fail(errc::peer_failed,
       fmt::format("UCX has lost {} ({}): it died or was killed, or the network between has failed; its own "
                   "output and exit code say more. Without UCX: TUTTI_TRANSPORTS=shm,tcp on all ranks",
                   owner_.describe(peer_), owner_.ucx().text_of(status)));
}

bool ucx_link::move() noexcept {
  if (lifeline_unread_) read_lifeline();
  bool any = end_frames();
  while (outgoing* const f = messages_.front()) {
    if (!send_frame(f->head, f->payload)) break;
    any = true;
    f->unlink();
    f->done(*f, true);
  }
  any |= send_slices();
  any |= end_frames();
  if (owner_.leaving() && !farewell_sent_ && !has_queue())
    farewell_sent_ = send_frame(farewell_.head, nullptr);
  if (at_ != phase::connected || (error_ == ucs_status_t::ok && !lifeline_ended_)) return any;
  if (owner_.leaving()) {
    drop();  // the peer has closed the link, and thereby has everything
  } else if (error_ != ucs_status_t::ok) {
    ucx_failed(error_);
  } else if (!owner_.was_idle()) {
    owner_.activate(*this);  // what it sent before its end may still be on the way
  } else {
    fail(errc::peer_failed,
         fmt::format("{} closed the connection without taking leave: it died or was killed; its own output "
                     "and exit code say why",
                     owner_.describe(peer_)));
  }
  return true;
}

void ucx_link::leave() noexcept {
  if (at_ == phase::connected) return owner_.activate(*this);
  const bool connects = at_ == phase::connecting || at_ == phase::awaiting;
  if (at_ != phase::idle && (!connects || has_queue())) return;
  attempt_.stop();
  at_ = phase::closed;
}

template <class Done>
bool ucx_link::wait_for_slices(Done done) noexcept {
  if (done()) return true;
  owner_.work_quietly(patience_with_slices, ends_, [&] { return done() || !lifeline_stands(); });
  if (done()) return true;
  force();
  fail(
      errc::peer_failed,
      fmt::format("{} did not take part in ending a transfer for {} ms: it computes without returning to its "
                  "loop, is stopped or dead. The connection to it was broken off, because a buffer of that "
                  "transfer was to be freed",
                  owner_.describe(peer_),
                  std::chrono::duration_cast<std::chrono::milliseconds>(patience_with_slices).count()));
  return false;
}

void ucx_link::force() noexcept {
  has_key_ = false;
  if (endpoint_ == nullptr) return;
  // First: a peer that has data after this knows that they are void.
  if (lifeline_) ::shutdown(lifeline_.get(), SHUT_RDWR);
  owner_.drop_held(this);
  ucp_request_param_t how;
  how.mask = ucp_request_param_t::has_flags;
  how.flags = abi::close_force;
  const abi::ucs_status_ptr_t closing =
      owner_.ucx().call.ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &how);
  if (closing != nullptr && !abi::is_error(closing)) owner_.ucx().call.ucp_request_free(closing);
  const auto all_back = [&] { return slices_.empty() && arriving_.empty() && parcels_out_ == 0; };
  if (owner_.work_quietly(patience_with_ucx, ends_, all_back)) return;
  base::log_error(
      fmt::format("UCX {} has not returned the buffers of the closed connection to {} within {} s, and may "
                  "still write to "
                  "them: this rank cannot go on, and its process ends",
                  owner_.ucx().version(), owner_.describe(peer_), patience_with_ucx.count()));
  std::abort();
}

void ucx_link::disconnect(bool abort) noexcept {
  if (watch_ != 0) owner_.backend().unwatch(std::exchange(watch_, 0));
  if (owner_.is_parents()) {  // UCX belongs to the process that opened it
    endpoint_ = nullptr;
  } else {
    if (!abort) end_frames();
    force();
  }
  lifeline_.reset();
  owner_.ended().for_each([&](arrival& a) {
    if (a.from != this) return;
    a.unlink();
    a.own.reset();
    if (!abort) end_redirected(a);
    owner_.arrival_pool().give_back(a);
  });
}

void ucx_link::clear_queues(list& rest) noexcept {
  peer_link::clear_queues(rest);
  rest.splice_back(draining_);
}

}  // namespace tutti::transport::ucx
