// SPDX-License-Identifier: Apache-2.0
// event_queue: future events by virtual time. Events of the same time happen in the order of planning, or in
// a drawn order.
#pragma once

#include "sim/random_numbers.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace tutti::sim {

using nanoseconds = std::int64_t;  // of virtual time, since its beginning
inline constexpr nanoseconds end_of_time = std::numeric_limits<nanoseconds>::max();

struct event {
  nanoseconds at = 0;
  std::uint64_t order = 0;
  std::function<void()> happen;
};

class event_queue {
 public:
  event_queue(bool shuffled, std::uint64_t seed) noexcept : shuffled_(shuffled), random_(seed) {}

  void add(nanoseconds at, std::function<void()> happen) {
    ++planned_;
    heap_.push_back({at, shuffled_ ? random_.next() : planned_, std::move(happen)});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  bool empty() const noexcept { return heap_.empty(); }
  event take() noexcept {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    event first = std::move(heap_.back());
    heap_.pop_back();
    return first;
  }

 private:
  static bool later(const event& a, const event& b) noexcept {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }
  const bool shuffled_;
  random_numbers random_;
  std::uint64_t planned_ = 0;
  std::vector<event> heap_;
};

}  // namespace tutti::sim
