// SPDX-License-Identifier: Apache-2.0
// inbox: frames from a stream: payload goes directly into the memory that the layer above names, the rest
// through a staging buffer.
#pragma once

#include "core/byte_stream.hpp"
#include "transport/link.hpp"
#include "transport/tcp/header.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace tutti::transport::tcp {

class inbox {
 public:
  enum class outcome {
    empty,         // nothing more to read now
    nearly_empty,  // less than requested was there, so probably nothing more; an end of the stream may follow
    more,          // the budget is used up
    ended,         // the peer has shut its side down
    broken,        // the stream has an error: see error()
    malformed,     // the peer has sent what no peer of this version sends: see complaint()
    stopped        // stop() was called meanwhile
  };

  // `checksums`: all payload comes with a checksum, and is delivered only if it matches.
  inbox(int peer, inbound& up, bool checksums = false) noexcept
      : peer_(peer), checksums_(checksums), up_(&up) {}

  // Makes the staging buffer, before the first receive(). Throws std::bad_alloc.
  void open();
  // Reads about `budget` bytes and delivers the frames that they complete.
  outcome receive(core::byte_stream& from, std::size_t budget) noexcept;

  // As link::redirect_destination(). Returns false if the current frame, if any, does not go to `owner`.
  bool redirect(void* owner, const destination_buffer& whole) noexcept;
  // Delivers nothing any more; data that come are read and dropped.
  void mute() noexcept;
  // Also reads nothing any more: receive() returns as soon as the call upward that led here has returned.
  void stop() noexcept;

  int error() const noexcept { return error_; }
  const char* complaint() const noexcept { return complaint_; }
  bool heard_leave() const noexcept { return heard_leave_; }
  // Whether the peer has asked, since the last call of this, if this rank's loop turns.
  bool take_question() noexcept { return std::exchange(asked_, false); }
  // Whether much of a frame has not come yet.
  bool amid_long_payload() const noexcept { return in_frame_ && to_come_ >= long_rest_bytes; }
  std::uint64_t received_bytes() const noexcept { return received_bytes_; }

 private:
  static constexpr std::size_t long_rest_bytes = std::size_t{8} * 1024;
  // Splits the staged bytes into frames. Returns false if the stream is malformed, or stop() was called.
  bool parse() noexcept;
  bool begin_frame(const std::uint8_t* at) noexcept;
  bool end_frame() noexcept;
  void count_in(const void* payload, std::size_t bytes, std::size_t stored) noexcept;
  bool is_between_links() const noexcept {
    return head_.kind == frame_kind::heartbeat || head_.kind == frame_kind::alive;
  }
  std::size_t staging_room() const noexcept;

  const int peer_;
  const bool checksums_;
  inbound* up_;  // null: muted
  std::unique_ptr<std::uint8_t[]> staging_;
  std::size_t staged_ = 0;  // bytes at the front of the staging buffer: less than a header, between calls

  bool in_frame_ = false;
  frame head_;
  destination_buffer where_;
  std::byte* next_ = nullptr;  // where the next byte of payload goes
  std::size_t to_store_ = 0;   // payload still to come that goes there
  std::size_t to_come_ = 0;    // payload still to come in total
  passage way_;
  std::uint32_t checksum_ = 0;  // of the part that has come
  std::uint8_t next_number_ = 0;

  int error_ = 0;
  const char* complaint_ = nullptr;
  bool heard_leave_ = false;
  bool asked_ = false;
  bool stopped_ = false;
  std::uint64_t received_bytes_ = 0;
};

}  // namespace tutti::transport::tcp
