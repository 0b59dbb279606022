// SPDX-License-Identifier: Apache-2.0
// The hand-off of a message that its receiver reads from the sender's own pages (see direct_slot): decides
// which side ends it, although the sender may take its buffer back at any moment.
#pragma once

#include "transport/shm/segment.hpp"

#include <array>
#include <cstdint>
#include <optional>

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

}  // namespace tutti::transport::shm
