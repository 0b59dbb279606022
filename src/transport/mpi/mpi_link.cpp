// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi/mpi_link.hpp"

#include "transport/mpi/mpi_transport.hpp"
#include "transport/tcp/header.hpp"

#include <algorithm>

namespace tutti::transport::mpi {
namespace {

constexpr std::size_t slice_bytes = parcel_bytes - tcp::header_bytes;
// Bytes moved in one go before the loop gets its turn.
constexpr std::size_t bytes_per_turn = std::size_t{1024} * 1024;

bool is_long(const outgoing& f) noexcept {
  return f.head.kind == frame_kind::data && f.head.length > slice_bytes;
}

}  // namespace

mpi_link::mpi_link(mpi_transport& owner, int peer) noexcept : owner_(owner), peer_(peer) {
  farewell_.head.kind = frame_kind::leave;
  farewell_.done = [](outgoing&, bool) noexcept {};
}

// Sends `bytes` of the payload from `progress` on, as one frame. Returns false if MPI did not take it; the
// link then fails.
bool mpi_link::send_piece(outgoing& f, std::size_t bytes) noexcept {
  frame head = f.head;
  if (head.kind == frame_kind::data) {
    head.length = bytes;
    head.other_transfer_id += f.progress;
  }
  tcp::header encoded;
  tcp::encode(head, encoded);
  const auto payload =
      bytes > 0 ? std::span<const std::byte>(f.payload + f.progress, bytes) : std::span<const std::byte>();
  const int code = owner_.through().send(peer_, frame_tag, std::as_bytes(std::span(encoded)), payload);
  if (code != 0) {
    owner_.send_failed(*this, code);
    return false;
  }
  f.progress += bytes;
  return true;
}

// Sends slice by slice while there is room. Returns true when the whole frame has left.
bool mpi_link::send_rest(outgoing& f) noexcept {
  const std::uint64_t length = tcp::payload_bytes(f.head);
  std::size_t budget = bytes_per_turn;
  while (budget > 0 && failure_ == errc::success && owner_.through().has_room(peer_)) {
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(length - f.progress, slice_bytes));
    if (!send_piece(f, bytes)) return false;
    if (f.progress == length) return true;
    budget -= std::min(budget, bytes);
    // Frames submitted meanwhile wait for one slice, not for all of them.
    if (!messages_.empty()) return false;
  }
  return false;
}

bool mpi_link::submit(outgoing& f) noexcept {
  f.progress = 0;
  if (muted_) return false;
  const bool direct = !closed_ && failure_ == errc::success && !has_queue();
  if (direct && send_rest(f)) {
    owner_.stirred();
    return true;
  }
  (is_long(f) ? long_data_ : messages_).push_back(f);
  owner_.activate(*this);
  return false;
}

cancel_result mpi_link::cancel(outgoing& f) noexcept {
  static_cast<base::list_hook<outgoing_tag>&>(f).unlink();
  return cancel_result::gone;
}

bool mpi_link::pump() noexcept {
  bool any = false;
  std::size_t budget = bytes_per_turn;
  while (budget > 0 && failure_ == errc::success) {
    outgoing* const f = !messages_.empty() ? messages_.front() : long_data_.front();
    if (f == nullptr) break;
    const std::uint64_t before = f->progress;
    const bool left = send_rest(*f);
    const auto moved = static_cast<std::size_t>(f->progress - before);
    any |= left || moved > 0;
    if (left) {
      cancel(*f);
      f->done(*f, true);
    } else if (moved == 0) {
      break;
    }
    budget -= std::min(budget, moved + tcp::header_bytes);
  }
  return any;
}

bool mpi_link::work() noexcept {
  if (closed_) {
    const bool any = has_queue();
    hand_back();
    return any;
  }
  if (failure_ == errc::success) {
    const bool any = pump();
    if (failure_ == errc::success) {
      if (has_queue()) owner_.activate(*this);
      return any;
    }
  }
  close(failure_, std::move(failure_text_));
  return true;
}

void mpi_link::fail(errc why, std::string text) noexcept {
  if (closed_ || failure_ != errc::success) return;
  failure_ = why;
  failure_text_ = std::move(text);
  owner_.activate(*this);
}

void mpi_link::peer_ended(errc why, std::string text) noexcept {
  if (!closed_) close(why, std::move(text));
}

void mpi_link::close(errc why, std::string text) noexcept {
  closed_ = true;
  hand_back();
  if (!muted_) owner_.up().closed(peer_, why, std::move(text));
}

void mpi_link::hand_back() noexcept {
  list rest;
  rest.splice_back(messages_);
  rest.splice_back(long_data_);
  while (outgoing* f = rest.pop_front())
    if (f != &farewell_) f->done(*f, false);
}

void mpi_link::leave() noexcept {
  muted_ = true;
  if (closed_) return;
  // Behind everything else: the last slice of the last long message must not follow it.
  (long_data_.empty() ? messages_ : long_data_).push_back(farewell_);
  owner_.activate(*this);
}

void mpi_link::drop() noexcept {
  muted_ = true;
  closed_ = true;
  base::list_hook<active_tag>::unlink();
  hand_back();
}

void mpi_link::cut() noexcept {
  list forgotten;
  forgotten.splice_back(messages_);
  forgotten.splice_back(long_data_);
  drop();
}

}  // namespace tutti::transport::mpi
