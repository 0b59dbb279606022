// SPDX-License-Identifier: Apache-2.0
// The shared segments of ranks: their layout, a rank's own, and its view of a peer's. Anonymous (memfd): nothing
// remains after any end of the process, including SIGKILL.
//
// Each rank owns a segment, sealed against shrinking; senders write into it.
//
//   page 0              segment_header: doorbell word, sizes
//   channel of rank 0   channel_header | lines | ring        (page aligned)
//   channel of rank 1   ...
// A channel carries frames from one sender to the owner: single producer, single consumer. The segment is
// sparse: only touched pages take memory, and a sender maps only the header and its own channel.
#pragma once

#include "base/limits.hpp"
#include "base/unique_fd.hpp"
#include "core/platform.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::transport::shm {

using namespace limits::shm;

inline constexpr std::uint32_t segment_magic = 0x74757474;  // "tutt"
inline constexpr std::uint32_t layout_version = 9;

// Many processors fetch two adjacent lines together: words written by different sides are 128 bytes apart.
inline constexpr std::size_t apart = 128;

struct segment_header {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t world;
  std::uint32_t rank;
  std::uint32_t channels;
  std::uint64_t ring_bytes;
  // Set by the owner before it sleeps. The sender that clears it notifies the owner's eventfd.
  alignas(apart) std::atomic<std::uint32_t> armed;
  // When the owner last polled its channels, by the host's clock. While it stands still, the owner sleeps,
  // computes or is stopped.
  alignas(apart) std::atomic<core::duration::rep> heartbeat;
};

// A message that the owner of the channel may read from the sender's own pages. The sender fills a slot and
// names it in the rts frame. The reader's compare-and-swap moves the state offered -> reading -> done, and
// back to offered if its receive gives the message up. The sender's exchange moves any of these to
// `cancelled`. So of a reader that finishes and a sender that wants its buffer back exactly one wins. Each
// use has a generation of its own: a late name finds another word.
struct direct_slot {
  enum state : std::uint64_t { unused = 0, offered, reading, done, cancelled };

  std::atomic<std::uint64_t> word;    // generation << 8 | state
  std::atomic<std::uint64_t> region;  // of the sender's shared memory
  std::atomic<std::uint64_t> offset;  // in the region
  std::uint64_t reserved;
};

struct channel_header {
  // Written by the consumer: how far it has read, in lines and in bytes.
  alignas(apart) std::atomic<std::uint64_t> lines_read;
  std::atomic<std::uint64_t> ring_read;
  // Written by the producer: it waits for room, and wants the doorbell when the consumer has read further.
  alignas(apart) std::atomic<std::uint32_t> wants_room;
  alignas(apart) direct_slot direct[direct_slots];
};
static_assert(sizeof(channel_header) <= page_bytes);

// One frame. `stamp` is written last, with release: (position + 1) << 8 | flags | kind. So a line of the
// previous lap is never taken for a new one.
struct line {
  static constexpr std::uint32_t kind_mask = 0x1f;
  static constexpr std::uint32_t part = 0x20;             // of an eager message, whose length ends the body
  static constexpr std::uint32_t in_ring = 0x40;          // payload in the ring, not in the line
  static constexpr std::uint32_t has_fingerprint = 0x80;  // first 16 bytes of the body

  std::atomic<std::uint32_t> stamp;
  std::atomic<std::uint32_t> length;  // read once: a peer that lies may change it
  std::uint32_t context;
  std::int32_t tag;
  std::byte body[48];
};
static_assert(sizeof(line) == line_bytes);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::uint32_t stamp_of(std::uint64_t position) noexcept {
  return static_cast<std::uint32_t>(position + 1) << 8;
}

constexpr std::size_t channel_bytes(std::size_t ring_bytes) noexcept {
  return page_bytes + lines_per_channel * line_bytes + ring_bytes;
}

// Twice a core's second-level cache (1 MiB on AMD families 25 and 26). When the writer comes round, the reader's
// cache has lost the lines. On family 25, taking them back from there makes a message of 64 KiB take 5.3 us, not
// 2.4. Rings are smaller if many ranks share a host, because the pairs grow with the square of their number.
constexpr std::size_t ring_bytes_for(int local_ranks) noexcept {
  std::size_t bytes = 2 * 1024 * 1024;
  for (int ranks = 16; ranks < local_ranks && bytes > least_ring_bytes; ranks *= 2) bytes /= 2;
  return bytes;
}

// Where a block of `bytes` goes in a ring. Blocks are contiguous and start at multiples of 64. A block that
// would cross the end starts at the beginning. Producer and consumer compute the same positions from the same
// sizes.
struct ring_cursor {
  std::uint64_t position = 0;

  static constexpr std::size_t padded(std::size_t bytes) noexcept { return (bytes + 63) & ~std::size_t{63}; }
  // The position of the block's start, counted from the beginning. `capacity` is a power of two.
  std::uint64_t start_for(std::size_t bytes, std::size_t capacity) const noexcept {
    const std::size_t offset = position & (capacity - 1);
    return offset + padded(bytes) > capacity ? position + (capacity - offset) : position;
  }
  void advance(std::size_t bytes, std::size_t capacity) noexcept {
    position = start_for(bytes, capacity) + padded(bytes);
  }
};

// Whether the file has so many bytes and can never have fewer: no read of them can fault.
bool can_be_read_safely(int fd, std::uint64_t bytes) noexcept;

enum class access { read_write, read_only };

struct unmapper {
  std::size_t bytes = 0;
  void operator()(std::byte* at) const noexcept;
};
using mapping = std::unique_ptr<std::byte[], unmapper>;
// Throws tutti::error (errc::resources), naming what could not be mapped.
mapping map_memory(int fd, std::size_t offset, std::size_t bytes, access may = access::read_write);

// One mapped channel.
struct channel {
  mapping memory;
  std::size_t ring_bytes = 0;

  channel_header& header() const noexcept { return *reinterpret_cast<channel_header*>(memory.get()); }
  line* lines() const noexcept { return reinterpret_cast<line*>(memory.get() + page_bytes); }
  std::byte* ring() const noexcept { return memory.get() + page_bytes + lines_per_channel * line_bytes; }
};

// The segment that this rank reads from.
class own_segment {
 public:
  own_segment(std::uint64_t world, int rank, int size, int local_ranks);
  int fd() const noexcept { return fd_.get(); }
  segment_header& header() const noexcept { return *reinterpret_cast<segment_header*>(header_.get()); }
  channel open_channel(int sender) const;

 private:
  base::unique_fd fd_;
  std::size_t ring_bytes_;  // not read from the header, which others can write
  mapping header_;
};

// The part of a peer's segment that this rank writes to.
class peer_segment {
 public:
  // Throws errc::protocol if the descriptor is not the segment of that rank of that world.
  peer_segment(base::unique_fd fd, std::uint64_t world, int peer, int my_rank);
  segment_header& header() const noexcept { return *reinterpret_cast<segment_header*>(header_.get()); }
  const channel& mine() const noexcept { return channel_; }

 private:
  mapping header_;
  channel channel_;
};

}  // namespace tutti::transport::shm
