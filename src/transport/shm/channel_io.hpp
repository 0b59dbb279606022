// SPDX-License-Identifier: Apache-2.0
// The two ends of a channel: a writer that turns frames into lines and ring blocks, and a reader that turns
// them back.
#pragma once

#include "base/ring_copy.hpp"
#include "transport/link.hpp"
#include "transport/shm/segment.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::transport::shm {

class channel_writer {
 public:
  channel_writer() noexcept = default;
  explicit channel_writer(const channel& c) noexcept : channel_(&c) {}

  // Writes a frame other than `data` that is not sent in parts, with its payload. Returns false if there is no
  // room now.
  bool write_message(const frame& head, const std::byte* payload) noexcept;
  bool in_parts(const frame& head) const noexcept {
    return head.kind == frame_kind::eager && head.length > (in_burst() ? whole_in_burst_bytes : whole_bytes);
  }
  // Whether there is room for all parts of this message now.
  bool has_room_for_parts(const frame& head) noexcept;
  // Writes the part that begins at byte `from`, for which there is room. Returns its length in bytes.
  std::size_t write_part(const frame& head, const std::byte* payload, std::uint64_t from) noexcept;
  // Writes the next slice of a data frame and advances o.progress. Returns false if there is no room now.
  bool write_slice(outgoing& o) noexcept;
  // Tells the consumer that the producer waits for room. Returns true if there is some after all: check
  // again.
  bool request_room() noexcept;
  // Some turns after a frame, fetches the place of the next block ahead, as long as the last one was. Call it in
  // each turn of the loop. Frames of a burst have no turn between them: each fetches that place itself, and a later
  // line. Stores leave a core in order, so they would all wait for each line that the reader's cache has.
  void turn() noexcept {
    if (turns_left_ > 0 && --turns_left_ == 0) fetch_block();
  }

 private:
  static constexpr std::size_t lines_ahead = 3;
  // After a frame its own lines have to cross first.
  static constexpr unsigned turns_before_fetch = 4;

  bool in_burst() const noexcept { return turns_left_ == turns_before_fetch; }
  void fetch_block() noexcept {
    base::fetch_to_write(channel_->ring() + (ring_.position & (channel_->ring_bytes - 1)),
                         std::exchange(to_fetch_, 0));
  }
  line* free_line() noexcept;
  void publish(line* l, const frame& head, std::size_t length, std::uint32_t kind_and_flags) noexcept;
  // Copies a payload to the next place in the ring. Returns false if there is no room now.
  bool write_block(const std::byte* payload, std::size_t bytes) noexcept;
  bool room(std::uint64_t end, std::size_t capacity, std::uint64_t& seen,
            const std::atomic<std::uint64_t>& shared) const noexcept {
    if (end - seen <= capacity) return true;
    // Acquire: what is written over now has been read.
    seen = shared.load(std::memory_order_acquire);
    return end - seen <= capacity;
  }

  const channel* channel_ = nullptr;
  std::uint64_t position_ = 0;
  ring_cursor ring_;
  base::ring_writer payload_;
  // The consumer's positions as last seen. Reading them costs a cache miss, so they are read only if there
  // seems to be no room.
  std::uint64_t lines_seen_ = 0;
  std::uint64_t ring_seen_ = 0;
  unsigned turns_left_ = 0;   // until the place of the next block is fetched
  std::size_t to_fetch_ = 0;  // bytes of it
};

class channel_reader {
 public:
  struct item {
    frame head;
    const std::byte* payload = nullptr;
    // Of a part: where it is in the message, and how long. No other frame comes between the parts of a message.
    std::size_t part_begin = 0;
    std::size_t part_bytes = 0;  // 0: a whole frame
  };

  channel_reader() noexcept = default;
  explicit channel_reader(const channel& c) noexcept : channel_(&c) {}

  bool has_next() const noexcept {
    const line& l = channel_->lines()[position_ % lines_per_channel];
    return is_next(l.stamp.load(std::memory_order_acquire));
  }
  // Whether room should be returned to the producer now.
  bool is_to_publish() const noexcept {
    const std::uint64_t lines = position_ - published_lines_;
    return lines > 0 &&
           (lines >= lines_per_channel / 4 || ring_.position - published_ring_ >= channel_->ring_bytes / 8 ||
            channel_->header().wants_room.load(std::memory_order_relaxed) != 0);
  }
  // Gets the next frame; its payload stays in place until release(). Returns false if there is none, or
  // (broken) if the data are invalid.
  bool peek(item& out) noexcept {
    const line& l = channel_->lines()[position_ % lines_per_channel];
    const std::uint32_t stamp =
        l.stamp.load(std::memory_order_acquire);  // then the rest of the line is there
    const std::uint32_t length = l.length.load(std::memory_order_relaxed);
    // Most frames: an eager message that is in its line and part of no collective.
    constexpr auto eager = static_cast<std::uint32_t>(frame_kind::eager);
    if (stamp != (stamp_of(position_) | eager) || length > sizeof l.body || part_end_ > 0)
      return is_next(stamp) && peek_other(out, stamp);
    out.head = {.kind = frame_kind::eager, .context = l.context, .tag = l.tag, .length = length};
    out.payload = l.body;
    out.part_bytes = 0;
    return true;
  }
  // Begins to fetch the line after next. For frames after the first: the writer then is ahead.
  void fetch_ahead() const noexcept {
    __builtin_prefetch(&channel_->lines()[(position_ + 2) % lines_per_channel]);
  }
  // Ends the use of the frame that peek() returned.
  void release() noexcept {
    ++position_;
    ring_ = next_ring_;
    part_end_ = next_part_end_;
  }
  // Returns room to the producer. Returns true if the producer waits for it.
  bool publish() noexcept;
  bool broken() const noexcept { return broken_; }

 private:
  bool is_next(std::uint32_t stamp) const noexcept {
    return (stamp & ~std::uint32_t{0xff}) == stamp_of(position_);
  }
  bool peek_other(item& out, std::uint32_t stamp) noexcept;
  bool peek_part(const line& l, std::uint32_t stamp, item& out) noexcept;
  const std::byte* next_block(std::size_t bytes) noexcept;

  const channel* channel_ = nullptr;
  std::uint64_t position_ = 0;
  ring_cursor ring_;
  // Of the message whose parts are coming: how much has come, and its length.
  std::size_t part_end_ = 0;
  std::uint64_t parted_length_ = 0;
  // As they will be after release().
  ring_cursor next_ring_;
  std::size_t next_part_end_ = 0;
  std::uint64_t published_lines_ = 0;
  std::uint64_t published_ring_ = 0;
  bool broken_ = false;
};

}  // namespace tutti::transport::shm
