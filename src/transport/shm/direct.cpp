// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/direct.hpp"

#include "base/log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

namespace tutti::transport::shm {
namespace {

// Each region of a peer is half as large as all before it: a peer with more regions is not honest.
constexpr std::size_t most_regions = 1024;

}  // namespace

// ---- the hand-off ----

std::uint64_t shown_messages::show(std::uint64_t region, std::uint64_t offset) noexcept {
  const auto free = std::find(names_.begin(), names_.end(), std::uint64_t{0});
  if (free == names_.end()) return 0;
  const auto index = static_cast<std::size_t>(free - names_.begin());
  const std::uint64_t generation = ++generation_ << 8;
  direct_slot& slot = slots_[index];
  slot.region.store(region, std::memory_order_relaxed);
  slot.offset.store(offset, std::memory_order_relaxed);
  // Release: publishes the message's bytes. A plain store suffices: the compare-and-swap of an earlier reader
  // finds its generation gone.
  slot.word.store(generation | direct_slot::offered, std::memory_order_release);
  *free = generation | index;
  return *free;
}

bool shown_messages::hide(std::uint64_t name) noexcept {
  const std::size_t index = name & 0xff;
  if (name == 0 || index >= direct_slots || names_[index] != name) return false;
  names_[index] = 0;
  // Acquire: a reader that finished has read before the sender's next writes. A reader that did not finish
  // fails in end(), because its word is gone; the fence keeps it from seeing the sender's next writes
  // earlier.
  const std::uint64_t was =
      slots_[index].word.exchange((name >> 8 << 8) | direct_slot::cancelled, std::memory_order_acq_rel);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return (was & 0xff) == direct_slot::done;
}

void shown_messages::hide_all() noexcept {
  for (const std::uint64_t name : names_) hide(name);
}

std::optional<shown_message::place> shown_message::begin() noexcept {
  std::uint64_t expected = generation_ | direct_slot::offered;
  if (!slot_->word.compare_exchange_strong(expected, reading(), std::memory_order_acq_rel,
                                           std::memory_order_relaxed))
    return std::nullopt;
  const place at{slot_->region.load(std::memory_order_relaxed),
                 slot_->offset.load(std::memory_order_relaxed)};
  // The slot was taken back and filled for the next message meanwhile: the place would be that one's.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!still_shown()) return std::nullopt;
  return at;
}

void shown_message::give_back() noexcept {
  std::uint64_t expected = reading();
  slot_->word.compare_exchange_strong(expected, generation_ | direct_slot::offered, std::memory_order_acq_rel,
                                      std::memory_order_relaxed);
}

bool shown_message::end() noexcept {
  // Release: everything has been read before the sender sees it.
  std::uint64_t expected = reading();
  return slot_->word.compare_exchange_strong(expected, generation_ | direct_slot::done,
                                             std::memory_order_acq_rel, std::memory_order_relaxed);
}

// ---- the peer's memory ----

void peer_regions::add(const region_label& label, base::unique_fd fd) noexcept {
  if (!fd || label.bytes == 0 || knows(label.region) || entries_.size() >= most_regions ||
      !can_be_read_safely(fd.get(), label.bytes))
    return;
  try {
    mapping memory = map_memory(fd.get(), 0, label.bytes, access::read_only);
    entries_.push_back(entry{label.region, std::move(memory), std::move(fd), {}});
  } catch (const std::exception& e) {
    base::log_info(fmt::format("a peer's shared memory is not read in place: {}", e.what()));
  }
}

const peer_regions::entry* peer_regions::entry_of(std::uint64_t region) const noexcept {
  const auto found = std::ranges::find(entries_, region, &entry::region);
  return found == entries_.end() ? nullptr : &*found;
}

const std::byte* peer_regions::find(std::uint64_t region, std::uint64_t offset,
                                    std::uint64_t bytes) const noexcept {
  const entry* e = entry_of(region);
  if (e == nullptr) return nullptr;
  const std::size_t size = e->memory.get_deleter().bytes;
  return offset <= size && bytes <= size - offset ? e->memory.get() + offset : nullptr;
}

std::byte* peer_regions::find_writable(std::uint64_t region, std::uint64_t offset,
                                       std::uint64_t bytes) noexcept {
  if (find(region, offset, bytes) == nullptr) return nullptr;
  const auto e = std::ranges::find(entries_, region, &entry::region);
  try {
    if (!e->writable) e->writable = map_memory(e->fd.get(), 0, e->memory.get_deleter().bytes);
  } catch (const std::exception& why) {
    base::log_info(fmt::format("a peer's shared memory is not written in place: {}", why.what()));
    return nullptr;
  }
  return e->writable.get() + offset;
}

// ---- reading ----

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
  r.head = {.kind = frame_kind::fin, .context = r.rts.context, .transfer_id = r.rts.transfer_id};
  r.progress = 0;
  r.done = [](outgoing& o, bool) noexcept { read_of(o).owner->reads_.give_back(read_of(o)); };
  return r;
}

outgoing* direct_reads::step(inbound& up, int peer) noexcept {
  read& r = read_of(*active_.front());
  const frame slice{.kind = frame_kind::data,
                    .context = r.rts.context,
                    .tag = r.rts.tag,
                    .length = std::min<std::uint64_t>(direct_slice_bytes, r.rts.length - r.copied),
                    .transfer_id = r.transfer_id,
                    .other_transfer_id = r.copied};

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
