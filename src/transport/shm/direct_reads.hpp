// SPDX-License-Identifier: Apache-2.0
// direct_reads: the messages that this rank is reading from one peer's own pages, slice by slice.
#pragma once

#include "base/object_pool.hpp"
#include "transport/link.hpp"
#include "transport/shm/direct_slots.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::transport::shm {

// Bytes that are copied before the loop gets its turn.
inline constexpr std::size_t direct_slice_bytes = 256 * 1024;

class direct_reads {
 public:
  // The message `rts`, at `from`, is to arrive as data frames for `transfer_id`. `message` has begun.
  void start(const frame& rts, const shown_message& message, const std::byte* from,
             std::uint64_t transfer_id) noexcept;
  bool full() const noexcept { return reads_.in_use() >= direct_slots; }
  bool busy() const noexcept { return !active_.empty(); }

  // Copies one slice. After the last one, returns the `fin` frame for the sender, which comes back by its
  // `done`.
  outgoing* step(inbound& up, int peer) noexcept;
  // Stops reading the message for `transfer_id`, which stays with the sender. Returns false if there is none.
  bool stop(std::uint64_t transfer_id, frame& rts) noexcept;
  // Handles a cancel frame of the sender. If it concerns a message that is being read, reading ends. The
  // frame then gets the receiver's transfer id, by which the upper layer knows the message.
  void note_cancel(frame& head) noexcept;
  // Stops all reading.
  void clear() noexcept;

 private:
  struct read : outgoing {
    direct_reads* owner = nullptr;
    frame rts;
    shown_message message;
    const std::byte* from = nullptr;
    std::uint64_t transfer_id = 0;  // the receiver's
    std::uint64_t copied = 0;
  };
  using list = base::intrusive_list<outgoing, outgoing_tag>;

  static read& read_of(outgoing& o) noexcept { return static_cast<read&>(o); }
  outgoing& fin_frame(read& r) noexcept;
  // Ends the first that is `wanted`, and returns it; null: there is none.
  template <class Wanted>
  read* take_out(Wanted wanted) noexcept;

  base::object_pool<read> reads_;
  list active_;
  list stopped_;  // taken back by the sender, whose cancel frame is on its way, or the end of the link
};

}  // namespace tutti::transport::shm
