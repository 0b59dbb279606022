// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/direct_reads.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace tutti::transport::shm {

bool direct_reads::start(const frame& announced, const shown_message& message, const std::byte* from,
                         std::uint64_t cookie) noexcept {
  if (free_.empty()) {
    try {
      free_.reserve(reads_.size() + 1);
      reads_.push_back(std::make_unique<read>());
    } catch (const std::bad_alloc&) {
      return false;
    }
    free_.push_back(reads_.back().get());
  }
  read& r = *free_.back();
  free_.pop_back();
  r.owner = this;
  r.announced = announced;
  r.message = message;
  r.from = from;
  r.cookie = cookie;
  r.copied = 0;
  active_.push_back(r);
  return true;
}

outgoing& direct_reads::taken_frame(read& r) noexcept {
  r.head = frame{};
  r.head.kind = frame_kind::taken;
  r.head.context = r.announced.context;
  r.head.cookie = r.announced.cookie;
  r.progress = 0;
  r.done = [](outgoing& o, bool) noexcept { read_of(o).owner->recycle(read_of(o)); };
  return r;
}

outgoing* direct_reads::step(inbound& up, int peer) noexcept {
  read& r = read_of(*active_.front());
  frame slice;
  slice.kind = frame_kind::data;
  slice.context = r.announced.context;
  slice.tag = r.announced.tag;
  slice.cookie = r.cookie;
  slice.other_cookie = r.copied;
  slice.length = std::min<std::uint64_t>(direct_slice_bytes, r.announced.length - r.copied);

  // No owner: the receive has ended, and the message with it, as one that comes through the ring and finds
  // nobody.
  const landing where = up.begin(peer, slice);
  const bool wanted = where.owner != nullptr && r.message.still_shown();
  if (wanted) std::memcpy(where.at, r.from + r.copied, std::min<std::size_t>(where.room, slice.length));
  r.copied += slice.length;
  const bool last = where.owner == nullptr || r.copied >= r.announced.length;
  if (last ? !r.message.end() : !wanted) {
    r.unlink();
    stopped_.push_back(r);
    return nullptr;
  }
  if (where.owner != nullptr) up.end(peer, slice, where);
  if (!last) return nullptr;
  r.unlink();
  return &taken_frame(r);
}

bool direct_reads::stop(std::uint64_t cookie, frame& announced) noexcept {
  for (list* reads : {&active_, &stopped_}) {
    for (outgoing* o = reads->front(); o != nullptr; o = reads->after(*o)) {
      read& r = read_of(*o);
      if (r.cookie != cookie) continue;
      announced = r.announced;
      r.message.give_back();
      r.unlink();
      recycle(r);
      return true;
    }
  }
  return false;
}

void direct_reads::note_withdrawal(frame& head) noexcept {
  if (head.other_cookie != 0) return;
  for (list* reads : {&active_, &stopped_}) {
    for (outgoing* o = reads->front(); o != nullptr; o = reads->after(*o)) {
      read& r = read_of(*o);
      if (r.announced.cookie != head.cookie) continue;
      head.other_cookie = r.cookie;
      r.unlink();
      recycle(r);
      return;
    }
  }
}

void direct_reads::clear() noexcept {
  while (outgoing* o = active_.pop_front()) recycle(read_of(*o));
  while (outgoing* o = stopped_.pop_front()) recycle(read_of(*o));
}

}  // namespace tutti::transport::shm
