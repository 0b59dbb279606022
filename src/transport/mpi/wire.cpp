// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi/wire.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::transport::mpi {
namespace {

constexpr std::size_t small_bytes = 4096;
// In flight to one peer: enough to keep a fast network busy, little enough to be kept for every peer.
constexpr std::size_t most_bytes_per_peer = std::size_t{1024} * 1024;
constexpr std::size_t most_parcels_per_peer = 64;
// Partly received, from all peers: the rest waits where MPI keeps it.
constexpr std::size_t most_receiving = 32;
constexpr int messages_per_turn = 32;
// Vain polls of sends before the others wait: each poll lets all of MPI progress.
constexpr int polls_per_turn = 8;

}  // namespace

wire::wire(calls& mpi, communicator_word on, int size)
    : mpi_(mpi), on_(on), peers_(static_cast<std::size_t>(size)) {}

wire::parcel& wire::take(std::size_t bytes) {
  const bool small = bytes <= small_bytes;
  const std::size_t wanted = small ? small_bytes : std::max(bytes, parcel_bytes);
  parcel& p = (small ? small_ : large_).take();
  if (p.capacity < wanted) {
    p.bytes.reset(new std::byte[wanted]);
    p.capacity = wanted;
  }
  p.length = bytes;
  return p;
}

void wire::put_back(parcel& p) noexcept { (p.capacity == small_bytes ? small_ : large_).give_back(p); }

bool wire::has_room(int peer) const noexcept {
  const peer_queue& to = peers_[static_cast<std::size_t>(peer)];
  return to.bytes < most_bytes_per_peer && to.parcels < most_parcels_per_peer;
}

int wire::send(int peer, int tag, std::span<const std::byte> head,
               std::span<const std::byte> payload) noexcept {
  parcel& p = take(head.size() + payload.size());
  if (!head.empty()) std::memcpy(p.bytes.get(), head.data(), head.size());
  if (!payload.empty()) std::memcpy(p.bytes.get() + head.size(), payload.data(), payload.size());
  p.peer = peer;
  p.tag = tag;
  int code = mpi_.start_send(on_, p.bytes.get(), static_cast<int>(p.length), peer, tag, &p.request);
  int ended = 1;
  if (code == 0) code = mpi_.test(&p.request, &ended);
  if (code != 0 || ended != 0) {
    put_back(p);
    return code;
  }
  peer_queue& to = peers_[static_cast<std::size_t>(peer)];
  to.bytes += p.length;
  ++to.parcels;
  outgoing_.push_back(p);
  return 0;
}

bool wire::end_sends(listener& up) noexcept {
  bool any = false;
  list later;  // those behind them come first next time
  for (int in_vain = 0; in_vain < polls_per_turn;) {
    parcel* const p = outgoing_.pop_front();
    if (p == nullptr) break;
    int ended = 0;
    const int code = mpi_.test(&p->request, &ended);
    if (code == 0 && ended == 0) {
      later.push_back(*p);
      ++in_vain;
      continue;
    }
    any = true;
    peer_queue& to = peers_[static_cast<std::size_t>(p->peer)];
    to.bytes -= p->length;
    --to.parcels;
    const int peer = p->peer;
    put_back(*p);
    if (code != 0) up.broke(peer, code);
  }
  outgoing_.splice_back(later);
  return any;
}

bool wire::end_receives(listener& up) noexcept {
  bool any = false;
  ++round_;
  incoming_.for_each([&](parcel& p) {
    peer_queue& from = peers_[static_cast<std::size_t>(p.peer)];
    if (from.held_in == round_) return;
    int ended = 0;
    const int code = mpi_.test(&p.request, &ended);
    if (code == 0 && ended == 0) {
      from.held_in = round_;
      return;
    }
    any = true;
    p.unlink();
    --receiving_;
    if (code == 0)
      up.arrived(p.peer, p.tag, std::span<const std::byte>(p.bytes.get(), p.length));
    else
      up.broke(p.peer, code);
    put_back(p);
  });
  return any;
}

// Returns false if nothing has come.
bool wire::take_next(listener& up) noexcept {
  int found = 0, peer = 0, tag = 0, bytes = 0;
  message_word message = 0;
  int code = mpi_.find_message(on_, &found, &peer, &tag, &bytes, &message);
  if (code != 0) {
    deaf_ = true;
    up.broke(-1, code);
    return true;
  }
  if (found == 0) return false;
  parcel& p = take(static_cast<std::size_t>(bytes));
  p.peer = peer;
  p.tag = tag;
  code = mpi_.start_receive(&message, p.bytes.get(), bytes, &p.request);
  if (code != 0) {
    put_back(p);
    up.broke(peer, code);
    return true;
  }
  incoming_.push_back(p);
  ++receiving_;
  return true;
}

bool wire::progress(listener& up) noexcept {
  bool any = end_sends(up);
  if (!incoming_.empty()) any |= end_receives(up);
  for (int i = 0; i < messages_per_turn && receiving_ < most_receiving && !deaf_; ++i) {
    if (!take_next(up)) break;
    any = true;
    end_receives(up);
  }
  return any;
}

}  // namespace tutti::transport::mpi
