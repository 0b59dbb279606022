// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/direct_reads.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::transport::shm {

void direct_reads::start(const frame& rts, const shown_message& message, const std::byte* from,
                         std::uint64_t transfer_id) noexcept {
  read& r = reads_.take();
  r.owner = this;
  r.rts = rts;
  r.message = message;
  r.from = from;
  r.transfer_id = transfer_id;
  r.copied = 0;
  active_.push_back(r);
}

outgoing& direct_reads::fin_frame(read& r) noexcept {
  r.head = frame{};
  r.head.kind = frame_kind::fin;
  r.head.context = r.rts.context;
  r.head.transfer_id = r.rts.transfer_id;
  r.progress = 0;
  r.done = [](outgoing& o, bool) noexcept { read_of(o).owner->reads_.give_back(read_of(o)); };
  return r;
}

outgoing* direct_reads::step(inbound& up, int peer) noexcept {
  read& r = read_of(*active_.front());
  frame slice;
  slice.kind = frame_kind::data;
  slice.context = r.rts.context;
  slice.tag = r.rts.tag;
  slice.transfer_id = r.transfer_id;
  slice.other_transfer_id = r.copied;
  slice.length = std::min<std::uint64_t>(direct_slice_bytes, r.rts.length - r.copied);

  // Without an owner the receive has ended, and its message with it, like one that comes through the ring and
  // finds no receive.
  const destination_buffer where = up.begin(peer, slice);
  const bool wanted = where.owner != nullptr && r.message.still_shown();
  if (wanted) std::memcpy(where.at, r.from + r.copied, std::min<std::size_t>(where.room, slice.length));
  r.copied += slice.length;
  const bool last = where.owner == nullptr || r.copied >= r.rts.length;
  if (last ? !r.message.end() : !wanted) {
    r.unlink();
    stopped_.push_back(r);
    return nullptr;
  }
  if (where.owner != nullptr) up.end(peer, slice, where);
  if (!last) return nullptr;
  r.unlink();
  return &fin_frame(r);
}

template <class Wanted>
direct_reads::read* direct_reads::take_out(Wanted wanted) noexcept {
  for (list* reads : {&active_, &stopped_})
    for (outgoing* o = reads->front(); o != nullptr; o = reads->after(*o)) {
      read& r = read_of(*o);
      if (!wanted(r)) continue;
      r.unlink();
      reads_.give_back(r);
      return &r;
    }
  return nullptr;
}

bool direct_reads::stop(std::uint64_t transfer_id, frame& rts) noexcept {
  read* const r = take_out([&](const read& each) { return each.transfer_id == transfer_id; });
  if (r == nullptr) return false;
  rts = r->rts;
  r->message.give_back();
  return true;
}

void direct_reads::note_cancel(frame& head) noexcept {
  if (head.other_transfer_id != 0) return;
  const read* const r = take_out([&](const read& each) { return each.rts.transfer_id == head.transfer_id; });
  if (r != nullptr) head.other_transfer_id = r->transfer_id;
}

void direct_reads::clear() noexcept {
  while (outgoing* o = active_.pop_front()) reads_.give_back(read_of(*o));
  while (outgoing* o = stopped_.pop_front()) reads_.give_back(read_of(*o));
}

}  // namespace tutti::transport::shm
