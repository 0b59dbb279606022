// SPDX-License-Identifier: Apache-2.0
// Messages that their receiver reads from the sender's own pages (see direct_slot): the hand-off, which decides
// which side ends one, although the sender may take its buffer back at any moment; the memory of a peer; and the
// reading.
#pragma once

#include "base/object_pool.hpp"
#include "base/unique_fd.hpp"
#include "transport/link.hpp"
#include "transport/shm/peer_socket.hpp"
#include "transport/shm/segment.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti::transport::shm {

// The sender's side of a channel.
class shown_messages {
 public:
  shown_messages() noexcept = default;
  explicit shown_messages(channel_header& header) noexcept : slots_(header.direct) {}

  // Lets the peer read there from now on. Returns the name, or 0 if every slot is in use.
  std::uint64_t show(std::uint64_t region, std::uint64_t offset) noexcept;
  // Ends the offer. After return no peer completes its read, so the buffer may be reused. Returns true if a
  // peer had already finished. Harmless if nothing is shown under that name.
  bool hide(std::uint64_t name) noexcept;
  void hide_all() noexcept;

 private:
  direct_slot* slots_ = nullptr;
  std::array<std::uint64_t, direct_slots> names_{};  // 0: free
  std::uint64_t generation_ = 0;
};

// The reader's side: one message. The peer wrote everything in it, so all of it is checked.
class shown_message {
 public:
  shown_message() noexcept = default;
  shown_message(channel_header& header, std::uint64_t name) noexcept
      : slot_(&header.direct[name % direct_slots]), generation_(name >> 8 << 8) {}

  struct place {
    std::uint64_t region = 0;
    std::uint64_t offset = 0;
  };
  // Starts to read and returns the place; empty if the sender has taken the message back.
  std::optional<place> begin() noexcept;
  // Whether going on is worth it.
  bool still_shown() const noexcept { return slot_->word.load(std::memory_order_relaxed) == reading(); }
  // Stops reading; it may be started again.
  void give_back() noexcept;
  // Ends reading. Returns true if the bytes read are the message; the sender then sees that. Returns false if
  // the sender has taken it back: the bytes may be anything.
  bool end() noexcept;

 private:
  std::uint64_t reading() const noexcept { return generation_ | direct_slot::reading; }

  direct_slot* slot_ = nullptr;
  std::uint64_t generation_ = 0;  // in place, as in the word
};

// A peer's shared memory as this rank sees it: read-only, mapped when its descriptor comes, kept as long as the
// link. What is to be written is mapped a second time.
class peer_regions {
 public:
  // Maps a region that the peer offers. A region that cannot be mapped, or whose file could shrink under a
  // reader, is ignored: its messages come through the ring.
  void add(const region_label& label, base::unique_fd fd) noexcept;
  // Returns `bytes` bytes from `offset` of `region`; null if it is unknown or does not contain all of them.
  const std::byte* find(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) const noexcept;
  // The same, to write there.
  std::byte* find_writable(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) noexcept;
  bool knows(std::uint64_t region) const noexcept { return entry_of(region) != nullptr; }

 private:
  struct entry {
    std::uint64_t region;
    mapping memory;
    base::unique_fd fd;
    mapping writable;  // null until it is asked for
  };
  const entry* entry_of(std::uint64_t region) const noexcept;

  std::vector<entry> entries_;
};

// The messages that this rank is reading from one peer's pages, slice by slice.
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
