// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi/mpi_transport.hpp"

#include "core/loop.hpp"
#include "transport/tcp/header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::transport::mpi {
namespace {

constexpr core::duration shortest_pause = std::chrono::microseconds(20);
constexpr core::duration longest_pause = std::chrono::milliseconds(1);
constexpr core::duration longest_idle_pause = std::chrono::milliseconds(20);

constexpr std::size_t slice_bytes = parcel_bytes - tcp::header_bytes;

bool is_whole(const outgoing& f) noexcept { return f.progress == payload_bytes(f.head); }

}  // namespace

// ---- the transport ----

mpi_transport::mpi_transport(core::loop& loop, wire& through)
    : transport(loop),
      wire_(through),
      // The timer only wakes the loop, which then polls.
      pause_timer_([](void*) noexcept {}, nullptr),
      pause_(shortest_pause) {}

void mpi_transport::open(const core::world_info& info, inbound& up) {
  start(info, up);
  // Every peer waits for this rank's farewell.
  for (int peer = 0; peer < info.size; ++peer)
    if (peer != info.rank) at(peer);
}

void mpi_transport::stirred() noexcept {
  pause_ = shortest_pause;
  loop_.wake();
}

bool mpi_transport::poll() noexcept {
  bool any = wire_.progress(*this);
  any |= work_active();
  if (any) pause_ = shortest_pause;
  return any;
}

bool mpi_transport::arm() noexcept {
  const bool waits =
      leaving_ || loop_.engine().waiting() || wire_.sending() || wire_.receiving() || !active_.empty();
  if (!active_.empty()) pause_ = shortest_pause;
  const core::duration longest = waits ? longest_pause : longest_idle_pause;
  loop_.engine().timers().arm(pause_timer_, loop_.engine().platform().now() + std::min(pause_, longest));
  pause_ = std::min(2 * pause_, longest);
  return false;
}

void mpi_transport::arrived(int peer, int tag, std::span<const std::byte> message) noexcept {
  if (!attached_) return;
  mpi_link& from = at(peer);
  if (tag == frame_tag) deliver(from, message);
  if (tag == acknowledge_tag) from.settle();
  if (tag == cut_tag) {
    from.settle();
    from.close(
        errc::peer_failed,
        fmt::format("{} ended its world without taking leave, or broke off the connection: its own output "
                    "says why",
                    describe(peer)));
  }
}

void mpi_transport::deliver(mpi_link& from, std::span<const std::byte> message) noexcept {
  if (from.closed()) return;
  const int peer = from.peer();
  frame head;
  const char* complaint = "a message too short for a frame";
  if (message.size() >= tcp::header_bytes) {
    const auto* const header = reinterpret_cast<const std::uint8_t*>(message.data());
    tcp::passage way;  // MPI checks the data itself
    complaint =
        tcp::decode(std::span<const std::uint8_t, tcp::header_bytes>(header, tcp::header_bytes), head, way);
    if (complaint == nullptr && payload_bytes(head) != message.size() - tcp::header_bytes)
      complaint = "a frame of another length than it says";
  }
  if (complaint != nullptr) {
    from.fail(errc::protocol,
              fmt::format("{} sent {}: is every rank built with the same tutti?", describe(peer), complaint));
    return;
  }
  if (head.kind == frame_kind::leave) {
    const int code = wire_.send(peer, acknowledge_tag, {}, {});
    if (code != 0) send_failed(from, code);
    from.settle();
    from.close(errc::peer_left, fmt::format("{} has finished and left", describe(peer)));
    return;
  }
  if (leaving_) return;
  const std::span<const std::byte> payload = message.subspan(tcp::header_bytes);
  up_->deliver(peer, head, payload.empty() ? nullptr : payload.data());
}

void mpi_transport::send_failed(mpi_link& l, int code) noexcept {
  l.fail(errc::peer_failed,
         fmt::format("MPI could not send to {}: {}; the process or the network between has failed",
                     describe(l.peer()), wire_.mpi().explain(code)));
}

void mpi_transport::broke(int peer, int code) noexcept {
  if (!attached_) return;
  const std::string why = wire_.mpi().explain(code);
  for (peer_link* l : live_)
    if (peer < 0 || l->peer() == peer)
      l->fail(errc::peer_failed, fmt::format("MPI lost {}: {}; the process or the network between has failed",
                                             describe(l->peer()), why));
}

bool mpi_transport::has_left() noexcept {
  return !wire_.sending() && std::ranges::all_of(live_, [](const peer_link* l) {
    return static_cast<const mpi_link*>(l)->finished();
  });
}

void mpi_transport::cut() noexcept {
  transport::cut();
  if (wire_.open()) wire_.close(left_);
}

// ---- its links ----

mpi_link::mpi_link(mpi_transport& owner, int peer) noexcept
    : peer_link(owner, peer, phase::connected), owner_(owner) {}

// Sends the payload from `progress` on, as much of it as one frame may have. Returns false if there is no room, or
// MPI did not take it; the link then fails.
bool mpi_link::send_slice(outgoing& f) noexcept {
  if (at_ != phase::connected || !owner_.through().has_room(peer_)) return false;
  const frame head = next_slice(f.head, f.progress, slice_bytes);
  const auto bytes = static_cast<std::size_t>(payload_bytes(head));
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

bool mpi_link::submit(outgoing& f) noexcept {
  f.progress = 0;
  if (owner_.leaving()) return false;
  if (!has_queue() && send_slice(f) && is_whole(f)) {
    owner_.stirred();
    return true;
  }
  (is_long(f, slice_bytes) ? data_ : messages_).push_back(f);
  owner_.activate(*this);
  return false;
}

// Messages pass between the slices of long ones.
bool mpi_link::move() noexcept {
  std::size_t sent = 0;
  while (sent < bytes_per_turn) {
    outgoing* const f = !messages_.empty() ? messages_.front() : data_.front();
    if (f == nullptr) break;
    const std::uint64_t before = f->progress;
    if (!send_slice(*f)) break;
    sent += static_cast<std::size_t>(f->progress - before) + tcp::header_bytes;
    if (!is_whole(*f)) continue;
    f->unlink();
    f->done(*f, true);
  }
  if (has_queue()) owner_.activate(*this);
  return sent > 0;
}

void mpi_link::leave() noexcept {
  if (closed()) return;
  // Behind everything else: the last slice of the last long message must not follow it.
  (data_.empty() ? messages_ : data_).push_back(farewell_);
  owner_.activate(*this);
}

void mpi_link::disconnect(bool) noexcept {
  if (!closed() && !std::exchange(settled_, true)) owner_.through().send(peer_, cut_tag, {}, {});
}

}  // namespace tutti::transport::mpi
