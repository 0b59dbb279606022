// SPDX-License-Identifier: Apache-2.0
// event_queue: future events by virtual time. Events of the same time happen in the order of planning, or in
// a drawn order.
#pragma once

#include "sim/random_numbers.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace tutti::sim {

using nanoseconds = std::int64_t;  // of virtual time, since its beginning
inline constexpr nanoseconds end_of_time = std::numeric_limits<nanoseconds>::max();

struct packet;

struct event {
  enum class what : std::uint8_t {
    step,         // the rank's loop turns
    established,  // a connection of `rank` to `other` is made, or it turns out that there is none
    at_port,      // the packet's last byte has come to the receiver's port
    arrived,      // ... and has passed it
    deliver,      // the rank's processor has taken its next packet
    death,
    disconnection,
    silence,  // connections across partition `index` are given up
    stall
  };
  nanoseconds at = 0;
  std::uint64_t order = 0;
  what kind = what::step;
  int rank = 0;
  int other = 0;
  std::size_t index = 0;
  packet* carries = nullptr;
};

class event_queue {
 public:
  event_queue(bool shuffled, std::uint64_t seed) noexcept : shuffled_(shuffled), random_(seed) {}

  void add(event e) {
    ++planned_;
    e.order = shuffled_ ? random_.next() : planned_;
    heap_.push_back(e);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  bool empty() const noexcept { return heap_.empty(); }
  event take() noexcept {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const event first = heap_.back();
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
