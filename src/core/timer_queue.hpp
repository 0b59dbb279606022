// SPDX-License-Identifier: Apache-2.0
// The engine's timers: a binary heap whose elements know their place, so that cancelling costs O(log n) and
// no search.
#pragma once

#include "core/environment.hpp"

#include <cstddef>
#include <vector>

namespace tutti::core {

class timer_queue;

// Calls `fire(owner)` once, from the loop, when its time has come. Destroying or cancelling it takes it out.
class timer {
 public:
  using function = void (*)(void* owner) noexcept;

  timer(function fire, void* owner) noexcept : fire_(fire), owner_(owner) {}
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;
  ~timer() { cancel(); }

  bool armed() const noexcept { return queue_ != nullptr; }
  time_point when() const noexcept { return when_; }
  void cancel() noexcept;

 private:
  friend class timer_queue;
  function fire_;
  void* owner_;
  timer_queue* queue_ = nullptr;
  std::size_t place_ = 0;
  time_point when_{};
};

class timer_queue {
 public:
  ~timer_queue();
  // Arms `t`, or moves it if it is armed already.
  void arm(timer& t, time_point when);
  // Fires all that are due at `now`; true when any was.
  bool fire_due(time_point now) noexcept;
  bool empty() const noexcept { return heap_.empty(); }
  time_point next() const noexcept { return heap_.empty() ? time_point::max() : heap_.front()->when_; }

 private:
  friend class timer;
  void remove(timer& t) noexcept;
  void sift_up(std::size_t place) noexcept;
  void sift_down(std::size_t place) noexcept;
  void put(std::size_t place, timer* t) noexcept;
  std::vector<timer*> heap_;
};

}  // namespace tutti::core
