// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/channel_io.hpp"

#include <algorithm>

namespace tutti::transport::shm {
namespace {

constexpr fingerprint_bytes none{};

// The body of lines of data frames and of frames without payload.
struct transfer_ids {
  std::uint64_t length;
  std::uint64_t transfer_id;
  std::uint64_t other_transfer_id;
};
static_assert(sizeof(transfer_ids) + sizeof(fingerprint_bytes) <= sizeof(line::body));

constexpr std::size_t fingerprint_in_transfer_ids = sizeof(transfer_ids);

// Where the length of a message stands in the lines of its parts.
constexpr std::size_t length_in_part = sizeof line::body - sizeof(std::uint64_t);

// Writes the fingerprint of a frame of a collective at that place in the body. Returns the flag that says so.
std::uint32_t write_fingerprint(line& l, std::size_t at, const frame& head) noexcept {
  if (head.fingerprint == none) return 0;
  std::memcpy(l.body + at, head.fingerprint.data(), sizeof none);
  return line::has_fingerprint;
}

constexpr std::size_t part_bytes_of(std::uint64_t length) noexcept {
  return std::clamp<std::size_t>(length / 4, least_part_bytes, part_limit_bytes) & ~std::size_t{63};
}

}  // namespace

line* channel_writer::free_line() noexcept {
  if (!room(position_ + 1, lines_per_channel, lines_seen_, channel_->header().lines_read)) return nullptr;
  return &channel_->lines()[position_ % lines_per_channel];
}

[[gnu::always_inline]] inline void channel_writer::publish(line* l, const frame& head, std::size_t length,
                                                           std::uint32_t kind_and_flags) noexcept {
  l->length.store(static_cast<std::uint32_t>(length), std::memory_order_relaxed);
  l->context = head.context;
  l->tag = head.tag;
  // Everything of the frame is visible to a reader that sees the stamp.
  l->stamp.store(stamp_of(position_) | kind_and_flags, std::memory_order_release);
  ++position_;
  if (in_burst())
    base::fetch_to_write(&channel_->lines()[(position_ + lines_ahead) % lines_per_channel], line_bytes);
  turns_left_ = turns_before_fetch;
}

bool channel_writer::write_block(const std::byte* payload, std::size_t bytes) noexcept {
  const std::size_t capacity = channel_->ring_bytes;
  const std::uint64_t start = ring_.start_for(bytes, capacity);
  if (!room(start + ring_cursor::padded(bytes), capacity, ring_seen_, channel_->header().ring_read))
    return false;
  payload_.copy(channel_->ring() + (start & (capacity - 1)), payload, bytes);
  ring_.advance(bytes, capacity);
  to_fetch_ = bytes;
  if (in_burst()) fetch_block();
  return true;
}

bool channel_writer::write_message(const frame& head, const std::byte* payload) noexcept {
  line* l = free_line();
  if (l == nullptr) return false;
  auto kind = static_cast<std::uint32_t>(head.kind);
  if (carries_payload(head.kind)) {
    const std::size_t bytes = head.length;
    kind |= write_fingerprint(*l, 0, head);
    const std::size_t skip = (kind & line::has_fingerprint) != 0 ? sizeof none : 0;
    if (bytes + skip <= sizeof l->body) {
      if (bytes > 0) std::memcpy(l->body + skip, payload, bytes);
    } else {
      if (!write_block(payload, bytes)) return false;
      kind |= line::in_ring;
    }
    publish(l, head, bytes, kind);
  } else {
    const transfer_ids c{head.length, head.transfer_id, head.other_transfer_id};
    std::memcpy(l->body, &c, sizeof c);
    publish(l, head, 0, kind | write_fingerprint(*l, fingerprint_in_transfer_ids, head));
  }
  return true;
}

bool channel_writer::has_room_for_parts(const frame& head) noexcept {
  const std::size_t part = part_bytes_of(head.length);
  const std::uint64_t lines = (head.length + part - 1) / part;
  // A part that would cross the end of the ring starts at its beginning.
  const std::uint64_t end = ring_.position + head.length + 2 * part;
  return room(position_ + lines, lines_per_channel, lines_seen_, channel_->header().lines_read) &&
         room(end, channel_->ring_bytes, ring_seen_, channel_->header().ring_read);
}

std::size_t channel_writer::write_part(const frame& head, const std::byte* payload,
                                       std::uint64_t from) noexcept {
  line* const l = free_line();
  const std::size_t bytes = std::min<std::size_t>(part_bytes_of(head.length), head.length - from);
  write_block(payload + from, bytes);
  std::memcpy(l->body + length_in_part, &head.length, sizeof head.length);
  publish(
      l, head, bytes,
      static_cast<std::uint32_t>(head.kind) | line::in_ring | line::part | write_fingerprint(*l, 0, head));
  return bytes;
}

bool channel_writer::write_slice(outgoing& o) noexcept {
  line* l = free_line();
  if (l == nullptr) return false;
  // Short messages also go in several slices: the reader copies one out while the next is copied in.
  const auto slice = std::clamp<std::uint64_t>(o.head.length / 16, least_slice_bytes, slice_bytes);
  const std::size_t bytes = std::min(slice & ~std::uint64_t{63}, o.head.length - o.progress);
  if (!write_block(o.payload + o.progress, bytes)) return false;
  const transfer_ids c{bytes, o.head.transfer_id, o.head.other_transfer_id + o.progress};
  std::memcpy(l->body, &c, sizeof c);
  publish(l, o.head, bytes, static_cast<std::uint32_t>(frame_kind::data));
  o.progress += bytes;
  return true;
}

bool channel_writer::request_room() noexcept {
  channel_header& h = channel_->header();
  h.wants_room.store(1, std::memory_order_relaxed);
  // Pairs with the fence in channel_reader::publish: either the consumer sees the request, or this side sees
  // what it has read.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint64_t lines = h.lines_read.load(std::memory_order_acquire);
  const std::uint64_t ring = h.ring_read.load(std::memory_order_acquire);
  const bool any = lines != lines_seen_ || ring != ring_seen_;
  lines_seen_ = lines;
  ring_seen_ = ring;
  return any;
}

const std::byte* channel_reader::next_block(std::size_t bytes) noexcept {
  const std::size_t capacity = channel_->ring_bytes;
  const std::byte* const at = channel_->ring() + (next_ring_.start_for(bytes, capacity) & (capacity - 1));
  next_ring_.advance(bytes, capacity);
  return at;
}

bool channel_reader::peek_other(item& out, std::uint32_t stamp) noexcept {
  const line& l = channel_->lines()[position_ % lines_per_channel];
  if (broken_) return false;
  out.head = frame{};
  out.head.kind = static_cast<frame_kind>(stamp & line::kind_mask);
  out.head.context = l.context;
  out.head.tag = l.tag;
  out.payload = nullptr;
  out.part_bytes = 0;
  next_ring_ = ring_;
  const bool marked = (stamp & line::has_fingerprint) != 0;
  if ((stamp & line::part) != 0 || part_end_ > 0) return peek_part(l, stamp, out);
  if (carries_payload(out.head.kind) && out.head.kind != frame_kind::data) {
    const std::size_t bytes = l.length.load(std::memory_order_relaxed);
    const std::size_t skip = marked ? sizeof none : 0;
    if (marked) std::memcpy(out.head.fingerprint.data(), l.body, sizeof none);
    out.head.length = bytes;
    const bool in_ring = (stamp & line::in_ring) != 0;
    if (in_ring ? bytes <= channel_->ring_bytes / 2 : bytes + skip <= sizeof l.body) {
      out.payload = in_ring ? next_block(bytes) : l.body + skip;
      return true;
    }
  } else if (is_frame_kind(stamp & line::kind_mask)) {
    transfer_ids c;
    std::memcpy(&c, l.body, sizeof c);
    out.head.length = c.length;
    out.head.transfer_id = c.transfer_id;
    out.head.other_transfer_id = c.other_transfer_id;
    if (marked) std::memcpy(out.head.fingerprint.data(), l.body + fingerprint_in_transfer_ids, sizeof none);
    if (out.head.kind != frame_kind::data) return true;
    if (c.length <= slice_bytes) {
      out.payload = next_block(c.length);
      return true;
    }
  }
  broken_ = true;  // no tutti peer writes this
  return false;
}

bool channel_reader::peek_part(const line& l, std::uint32_t stamp, item& out) noexcept {
  std::uint64_t length = 0;
  std::memcpy(&length, l.body + length_in_part, sizeof length);
  const std::size_t bytes = l.length.load(std::memory_order_relaxed);
  broken_ = out.head.kind != frame_kind::eager || (stamp & line::part) == 0 || length > eager_limit_bytes ||
            bytes == 0 || part_end_ + bytes > length || (part_end_ > 0 && length != parted_length_);
  if (broken_) return false;
  if ((stamp & line::has_fingerprint) != 0) std::memcpy(out.head.fingerprint.data(), l.body, sizeof none);
  out.head.length = parted_length_ = length;
  out.payload = next_block(bytes);
  out.part_begin = part_end_;
  out.part_bytes = bytes;
  next_part_end_ = part_end_ + bytes < length ? part_end_ + bytes : 0;
  return true;
}

bool channel_reader::publish() noexcept {
  if (position_ == published_lines_) return false;
  channel_header& h = channel_->header();
  // Release: the producer may overwrite what it finds read.
  h.ring_read.store(ring_.position, std::memory_order_release);
  h.lines_read.store(position_, std::memory_order_release);
  published_lines_ = position_;
  published_ring_ = ring_.position;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return h.wants_room.load(std::memory_order_relaxed) != 0 &&
         h.wants_room.exchange(0, std::memory_order_acq_rel) != 0;
}

}  // namespace tutti::transport::shm
