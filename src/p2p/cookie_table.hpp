// SPDX-License-Identifier: Apache-2.0
// Names for activities in frames: an index and a generation, checked on the way back, so that a late or a forged frame
// finds nothing instead of memory that was reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::p2p {

struct send;
struct receive;

class cookie_table {
 public:
  std::uint64_t insert(send& s) { return insert(&s, nullptr); }
  std::uint64_t insert(receive& r) { return insert(nullptr, &r); }
  void erase(std::uint64_t cookie) noexcept {
    slot* s = find(cookie);
    if (s == nullptr) return;
    ++s->generation;
    s->sending = nullptr;
    s->receiving = nullptr;
    free_.push_back(static_cast<std::uint32_t>(cookie));   // capacity was reserved by insert()
  }
  send* find_send(std::uint64_t cookie) noexcept {
    slot* s = find(cookie);
    return s != nullptr ? s->sending : nullptr;
  }
  receive* find_receive(std::uint64_t cookie) noexcept {
    slot* s = find(cookie);
    return s != nullptr ? s->receiving : nullptr;
  }
  // Calls f(send*, receive*) for every name in use; f may erase.
  template <class F>
  void for_each(F f) {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].sending != nullptr || slots_[i].receiving != nullptr) f(slots_[i].sending, slots_[i].receiving);
  }

 private:
  struct slot {
    std::uint32_t generation = 1;
    send* sending = nullptr;
    receive* receiving = nullptr;
  };
  std::uint64_t insert(send* s, receive* r) {
    if (free_.empty()) {
      free_.reserve(slots_.size() + 1);
      slots_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].sending = s;
    slots_[index].receiving = r;
    return (std::uint64_t{slots_[index].generation} << 32) | index;
  }
  slot* find(std::uint64_t cookie) noexcept {
    const auto index = static_cast<std::uint32_t>(cookie);
    if (index >= slots_.size() || slots_[index].generation != cookie >> 32) return nullptr;
    return &slots_[index];
  }

  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace tutti::p2p
