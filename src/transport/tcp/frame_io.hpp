// SPDX-License-Identifier: Apache-2.0
// The two ends of a stream of frames: an outbox that decides which bytes go next and knows what has left, and an
// inbox that turns bytes back into frames.
//
// The outbox has two queues. Long data frames leave one of them slice by slice. All other frames leave the other
// first, in order. One call of the kernel takes as much as it can: headers and payloads of many frames,
// gathered. The inbox receives payload directly into the memory that the layer above names, the rest through a
// staging buffer. Stripes give the parts of a long data frame to the outboxes of several connections.
#pragma once

#include "base/intrusive_list.hpp"
#include "core/byte_stream.hpp"
#include "core/world_info.hpp"
#include "transport/link.hpp"
#include "transport/tcp/header.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace tutti::transport::tcp {

class outbox {
 public:
  using list = base::intrusive_list<outgoing, outgoing_tag>;
  enum class outcome {
    drained,  // nothing is left to send
    blocked,  // the kernel takes no more: go on when the descriptor is writable
    more,     // the budget is used up
    broken    // the stream has an error: see error()
  };

  // `checksums`: all payload leaves with a checksum.
  explicit outbox(bool checksums = false) noexcept : checksums_(checksums) {}

  bool empty() const noexcept { return cut_short_.left() == 0 && messages_.empty() && long_data_.empty(); }
  void push(outgoing& f) noexcept;
  // Writes about `budget` bytes. Frames whose last byte has left go to `left`, in that order; the caller
  // calls their `done`.
  outcome send(core::byte_stream& to, std::size_t budget, list& left) noexcept;
  // The errno that broke the stream.
  int error() const noexcept { return error_; }
  std::uint64_t sent_bytes() const noexcept { return sent_bytes_; }
  // Takes back `f`; on return its payload is not referenced. Only the rest that an already started header has
  // promised is still sent, from a copy. `leaves` means that this completes the frame. Empty: there is no
  // memory for the copy, and the stream must be broken. Harmless if `f` is not queued.
  std::optional<cancel_result> cancel(outgoing& f) noexcept;
  // Empties the outbox into `rest`.
  void clear(list& rest) noexcept;

 private:
  // A header and the payload that it promises.
  struct piece {
    outgoing* of = nullptr;  // null: of a cancelled frame, or of none
    const std::byte* payload = nullptr;
    std::size_t promised = 0;
    std::size_t sent = header_bytes;  // of both
    header head;
    std::size_t left() const noexcept { return header_bytes + promised - sent; }
    std::size_t payload_sent() const noexcept { return sent - std::min(sent, header_bytes); }
  };
  struct batch;

  void gather(batch& b) noexcept;
  void settle(batch& b, std::size_t sent, list& left) noexcept;

  const bool checksums_;
  std::uint8_t next_number_ = 0;  // of the first frame that has not begun to leave
  list messages_;
  list long_data_;
  // A piece that a call of the kernel has sent in part. Its frame, if any, is the first of its queue.
  piece cut_short_;
  std::unique_ptr<std::byte[]> copy_;
  int error_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

// Long data frames that leave by several connections at once. Each connection carries a stripe, and takes the
// next one when that has left. For the peer each stripe is an ordinary data frame, which says where in the
// message it belongs.
class stripes {
 public:
  static constexpr std::size_t most_connections = core::most_tcp_connections;

  stripes() noexcept;

  bool empty() const noexcept { return whole_.empty(); }
  bool has(const outgoing& f) const noexcept;
  // `f` is a data frame of more than one slice.
  void push(outgoing& f) noexcept;
  // Moves the next stripe to the outbox of connection `by`, if there is one and the connection carries none.
  // `among` is the number of connections that share a frame.
  bool next(std::size_t by, std::size_t among, outbox& out) noexcept;
  // As outbox::cancel().
  std::optional<cancel_result> cancel(outgoing& f) noexcept;
  // Called before the connections' outboxes are cleared: pushed frames go to `rest`.
  void clear(outbox::list& rest) noexcept;

 private:
  struct stripe : outgoing {
    stripes* owner = nullptr;
    outgoing* of = nullptr;  // null: none in flight
    outbox* through = nullptr;
  };

  void left(stripe& p) noexcept;

  outbox::list whole_;  // `progress`: how much of it has been given out
  std::array<stripe, most_connections> by_connection_;
};

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

  // The stream is of a further connection: it brings data frames only.
  void take_data_only() noexcept { data_only_ = true; }

  // Redirects the current frame, as a link does. Returns false if there is none, or it does not go to `owner`.
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
  bool amid_long_payload() const noexcept { return to_come() >= long_rest_bytes; }
  std::uint64_t received_bytes() const noexcept { return received_bytes_; }

 private:
  static constexpr std::size_t long_rest_bytes = std::size_t{8} * 1024;
  // Splits the staged bytes into frames. Returns false if the stream is malformed, or stop() was called.
  bool parse() noexcept;
  bool begin_frame(const std::uint8_t* at) noexcept;
  bool end_frame() noexcept;
  void count_in(const void* payload, std::size_t bytes) noexcept;
  // Payload that has not come yet, and how much of it goes to where_.at + come_.
  std::size_t to_come() const noexcept { return length_ - come_; }
  std::size_t to_store() const noexcept {
    const std::size_t room = where_.at != nullptr ? std::min(where_.room, length_) : 0;
    return room - std::min(room, come_);
  }
  bool is_between_links() const noexcept {
    return head_.kind == frame_kind::leave || head_.kind == frame_kind::heartbeat ||
           head_.kind == frame_kind::alive;
  }

  const int peer_;
  const bool checksums_;
  bool data_only_ = false;
  inbound* up_;  // null: muted
  std::unique_ptr<std::uint8_t[]> staging_;
  std::size_t staged_ = 0;  // bytes at the front of the staging buffer: less than a header, between calls

  bool in_frame_ = false;
  frame head_;
  destination_buffer where_;
  std::size_t length_ = 0;  // of its payload
  std::size_t come_ = 0;    // the part of it that has come
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
