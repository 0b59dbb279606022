// SPDX-License-Identifier: Apache-2.0
// Shared memory of one rank: its own segment, and its view of a peer's. Anonymous (memfd): nothing remains
// after any end of the process, including SIGKILL.
#pragma once

#include "base/unique_fd.hpp"
#include "transport/shm/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::transport::shm {

// Whether the file has so many bytes and can never have fewer: no read of them can fault.
bool can_be_read_safely(int fd, std::uint64_t bytes) noexcept;

enum class access { read_write, read_only };

// A mapping that unmaps itself.
class mapping {
 public:
  mapping() noexcept = default;
  // Throws tutti::error (errc::resources), naming what could not be mapped.
  mapping(int fd, std::size_t offset, std::size_t bytes, access may = access::read_write);
  mapping(mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  mapping& operator=(mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~mapping();
  std::byte* data() const noexcept { return address_; }
  std::size_t size() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return address_ != nullptr; }

 private:
  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

// One mapped channel.
struct channel {
  mapping memory;
  std::size_t ring_bytes = 0;

  channel_header& header() const noexcept { return *reinterpret_cast<channel_header*>(memory.data()); }
  line* lines() const noexcept { return reinterpret_cast<line*>(memory.data() + page_bytes); }
  std::byte* ring() const noexcept { return memory.data() + page_bytes + lines_per_channel * line_bytes; }
};

// The segment that this rank reads from.
class own_segment {
 public:
  own_segment(std::uint64_t world, int rank, int size, int local_ranks);
  int fd() const noexcept { return fd_.get(); }
  segment_header& header() const noexcept { return *reinterpret_cast<segment_header*>(header_.data()); }
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
  segment_header& header() const noexcept { return *reinterpret_cast<segment_header*>(header_.data()); }
  const channel& mine() const noexcept { return channel_; }

 private:
  mapping header_;
  channel channel_;
};

}  // namespace tutti::transport::shm
