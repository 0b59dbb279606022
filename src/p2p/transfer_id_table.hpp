// SPDX-License-Identifier: Apache-2.0
// transfer_id_table: names for transfers in frames. A name is an index and a generation, which is checked on
// the way back. So a late or forged frame finds nothing, rather than memory that was reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::p2p {

template <class Transfer>
class transfer_id_table {
 public:
  // The first name of each slot has this generation: lets a test start near the last one.
  explicit transfer_id_table(std::uint32_t first_generation = 1) : first_generation_(first_generation) {}

  // The name is never 0.
  std::uint64_t insert(Transfer& t) {
    if (free_.empty()) {
      free_.reserve(slots_.size() + 1);
      slots_.push_back({first_generation_, nullptr});
      free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].is = &t;
    return (std::uint64_t{slots_[index].generation} << 32) | index;
  }
  // Makes the name stand for something else. Harmless if it is not in use.
  void replace(std::uint64_t transfer_id, Transfer& t) noexcept {
    if (slot* s = find_slot(transfer_id)) s->is = &t;
  }
  void erase(std::uint64_t transfer_id) noexcept {
    slot* s = find_slot(transfer_id);
    if (s == nullptr) return;
    if (++s->generation == 0) s->generation = 1;  // wrapped
    s->is = nullptr;
    free_.push_back(static_cast<std::uint32_t>(transfer_id));  // insert() reserved the capacity
  }
  // Returns nullptr if the name is not in use.
  Transfer* find(std::uint64_t transfer_id) noexcept {
    slot* s = find_slot(transfer_id);
    return s != nullptr ? s->is : nullptr;
  }
  // Calls f(transfer) for every name in use; f may erase.
  template <class F>
  void for_each(F f) {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (Transfer* const t = slots_[i].is) f(*t);
  }
  std::size_t in_use() const noexcept { return slots_.size() - free_.size(); }

 private:
  struct slot {
    std::uint32_t generation;  // never 0
    Transfer* is;              // nullptr: the name is not in use
  };
  slot* find_slot(std::uint64_t transfer_id) noexcept {
    const auto index = static_cast<std::uint32_t>(transfer_id);
    if (index >= slots_.size() || slots_[index].generation != transfer_id >> 32) return nullptr;
    return &slots_[index];
  }

  const std::uint32_t first_generation_;
  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace tutti::p2p
