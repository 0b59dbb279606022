// SPDX-License-Identifier: Apache-2.0
// transfer_id_table: names for transfers in frames. A name is an index and a generation, which is checked on
// the way back. So a late or forged frame finds nothing, rather than memory that was reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::p2p {

struct send;
struct receive;
struct unexpected;

class transfer_id_table {
 public:
  // What a name stands for: one of the three, or none.
  struct named {
    send* sending = nullptr;
    receive* receiving = nullptr;
    unexpected* kept = nullptr;
  };

  transfer_id_table() = default;
  // Makes a table with one slot, whose first name has this generation: lets a test start near the last one.
  explicit transfer_id_table(std::uint32_t first_generation) : slots_{{first_generation, {}}}, free_{0} {}

  // The name is never 0.
  std::uint64_t insert(send& s) { return insert(named{&s, nullptr, nullptr}); }
  std::uint64_t insert(receive& r) { return insert(named{nullptr, &r, nullptr}); }
  // Makes the name stand for something else. Harmless if it is not in use.
  void replace(std::uint64_t transfer_id, receive& r) noexcept {
    replace(transfer_id, named{nullptr, &r, nullptr});
  }
  void replace(std::uint64_t transfer_id, unexpected& u) noexcept {
    replace(transfer_id, named{nullptr, nullptr, &u});
  }
  void erase(std::uint64_t transfer_id) noexcept {
    slot* s = find(transfer_id);
    if (s == nullptr) return;
    if (++s->generation == 0) s->generation = 1;  // wrapped
    s->is = named{};
    free_.push_back(static_cast<std::uint32_t>(transfer_id));  // insert() reserved the capacity
  }
  named find_any(std::uint64_t transfer_id) noexcept {
    slot* s = find(transfer_id);
    return s != nullptr ? s->is : named{};
  }
  send* find_send(std::uint64_t transfer_id) noexcept { return find_any(transfer_id).sending; }
  receive* find_receive(std::uint64_t transfer_id) noexcept { return find_any(transfer_id).receiving; }
  // Calls f(named) for every name in use; f may erase.
  template <class F>
  void for_each(F f) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const named is = slots_[i].is;
      if (is.sending != nullptr || is.receiving != nullptr || is.kept != nullptr) f(is);
    }
  }
  std::size_t in_use() const noexcept { return slots_.size() - free_.size(); }

 private:
  struct slot {
    std::uint32_t generation = 1;  // never 0
    named is;
  };
  std::uint64_t insert(const named& is) {
    if (free_.empty()) {
      free_.reserve(slots_.size() + 1);
      slots_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].is = is;
    return (std::uint64_t{slots_[index].generation} << 32) | index;
  }
  void replace(std::uint64_t transfer_id, const named& is) noexcept {
    if (slot* s = find(transfer_id)) s->is = is;
  }
  slot* find(std::uint64_t transfer_id) noexcept {
    const auto index = static_cast<std::uint32_t>(transfer_id);
    if (index >= slots_.size() || slots_[index].generation != transfer_id >> 32) return nullptr;
    return &slots_[index];
  }

  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace tutti::p2p
