// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/direct_slots.hpp"

#include <algorithm>

namespace tutti::transport::shm {

static_assert(direct_slots <= 256, "the number of a slot takes the lowest byte of a name");

std::uint64_t shown_messages::show(std::uint64_t region, std::uint64_t offset) noexcept {
  const auto free = std::find(names_.begin(), names_.end(), std::uint64_t{0});
  if (free == names_.end()) return 0;
  const auto index = static_cast<std::size_t>(free - names_.begin());
  const std::uint64_t generation = ++generation_ << 8;
  direct_slot& slot = slots_[index];
  slot.region.store(region, std::memory_order_relaxed);
  slot.offset.store(offset, std::memory_order_relaxed);
  // Release: publishes the message's bytes. A plain store suffices: the compare-and-swap of an earlier reader
  // finds its generation gone.
  slot.word.store(generation | direct_slot::offered, std::memory_order_release);
  *free = generation | index;
  return *free;
}

bool shown_messages::hide(std::uint64_t name) noexcept {
  const std::size_t index = name & 0xff;
  if (name == 0 || index >= direct_slots || names_[index] != name) return false;
  names_[index] = 0;
  // Acquire: a reader that finished has read before the sender's next writes. A reader that did not finish
  // fails in end(), because its word is gone; the fence keeps it from seeing the sender's next writes
  // earlier.
  const std::uint64_t was =
      slots_[index].word.exchange((name >> 8 << 8) | direct_slot::cancelled, std::memory_order_acq_rel);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return (was & 0xff) == direct_slot::done;
}

void shown_messages::hide_all() noexcept {
  for (const std::uint64_t name : names_) hide(name);
}

std::optional<shown_message::place> shown_message::begin() noexcept {
  std::uint64_t expected = generation_ | direct_slot::offered;
  if (!slot_->word.compare_exchange_strong(expected, reading(), std::memory_order_acq_rel,
                                           std::memory_order_relaxed))
    return std::nullopt;
  const place at{slot_->region.load(std::memory_order_relaxed),
                 slot_->offset.load(std::memory_order_relaxed)};
  // The slot was taken back and filled for the next message meanwhile: the place would be that one's.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!still_shown()) return std::nullopt;
  return at;
}

void shown_message::give_back() noexcept {
  std::uint64_t expected = reading();
  slot_->word.compare_exchange_strong(expected, generation_ | direct_slot::offered, std::memory_order_acq_rel,
                                      std::memory_order_relaxed);
}

bool shown_message::end() noexcept {
  // Release: everything has been read before the sender sees it.
  std::uint64_t expected = reading();
  return slot_->word.compare_exchange_strong(expected, generation_ | direct_slot::done,
                                             std::memory_order_acq_rel, std::memory_order_relaxed);
}

}  // namespace tutti::transport::shm
