// SPDX-License-Identifier: Apache-2.0
// outbox: frames on their way into a stream: which bytes go next, and what has left.
//
// There are two queues. Long data frames leave one of them slice by slice. All other frames leave the other
// first, in order. One call of the kernel takes as much as it can: headers and payloads of many frames,
// gathered.
#pragma once

#include "base/intrusive_list.hpp"
#include "core/byte_stream.hpp"
#include "transport/link.hpp"
#include "transport/tcp/header.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace tutti::transport::tcp {

// The most that one call of the kernel gets. With one more slice, sender and receiver of a 1 MiB message on
// loopback keep each other waiting: 165-200 us, against 131-150 (perf/NOTES.md).
inline constexpr std::size_t bytes_per_call = 3 * slice_bytes;

// Whether the frame leaves as several frames, between which others may pass.
inline bool is_long(const outgoing& f) noexcept {
  return f.head.kind == frame_kind::data && f.head.length > slice_bytes;
}

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
  // A header and the payload that it promises, or what is left of both.
  struct piece {
    outgoing* of = nullptr;  // null: of a cancelled frame
    const std::byte* payload = nullptr;
    std::size_t payload_left = 0;
    std::size_t promised = 0;  // total payload
    std::size_t header_left = 0;
    std::size_t left() const noexcept { return header_left + payload_left; }
  };
  struct batch;

  void gather(batch& b) noexcept;
  void settle(batch& b, std::size_t sent, list& left) noexcept;
  void finish(const piece& p, list& left) noexcept;

  const bool checksums_;
  std::uint8_t next_number_ = 0;  // of the first frame that has not begun to leave
  list messages_;
  list long_data_;
  // A piece that a call of the kernel has sent in part. Its frame, if any, is the first of its queue.
  piece cut_short_;
  header cut_short_header_{};
  std::unique_ptr<std::byte[]> copy_;
  int error_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace tutti::transport::tcp
