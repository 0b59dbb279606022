// SPDX-License-Identifier: Apache-2.0
// id_table: ids for objects in frames and in events of the kernel. An id is an index and a generation, which is
// checked on the way back. So a late or forged frame finds nothing, rather than memory that was reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::base {

template <class T>
class id_table {
 public:
  // The first id of each slot has this generation: lets a test start near the last one.
  explicit id_table(std::uint32_t first_generation = 1) : first_generation_(first_generation) {}

  // The id is never 0.
  std::uint64_t insert(T& t) {
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
  // Makes the id stand for something else. Harmless if it is not in use.
  void replace(std::uint64_t id, T& t) noexcept {
    if (slot* s = find_slot(id)) s->is = &t;
  }
  void erase(std::uint64_t id) noexcept {
    slot* s = find_slot(id);
    if (s == nullptr) return;
    if (++s->generation == 0) s->generation = 1;  // wrapped
    s->is = nullptr;
    free_.push_back(static_cast<std::uint32_t>(id));  // insert() reserved the capacity
  }
  // Returns nullptr if the id is not in use.
  T* find(std::uint64_t id) noexcept {
    slot* s = find_slot(id);
    return s != nullptr ? s->is : nullptr;
  }
  // Calls f(object) for every id in use; f may erase.
  template <class F>
  void for_each(F f) {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (T* const t = slots_[i].is) f(*t);
  }
  std::size_t in_use() const noexcept { return slots_.size() - free_.size(); }

 private:
  struct slot {
    std::uint32_t generation;  // never 0
    T* is;                     // nullptr: the id is not in use
  };
  slot* find_slot(std::uint64_t id) noexcept {
    const auto index = static_cast<std::uint32_t>(id);
    if (index >= slots_.size() || slots_[index].generation != id >> 32) return nullptr;
    return &slots_[index];
  }

  const std::uint32_t first_generation_;
  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace tutti::base
