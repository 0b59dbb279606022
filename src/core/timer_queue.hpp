// SPDX-License-Identifier: Apache-2.0
// The engine's timers: a pairing heap linked through the timers themselves, so that arming one needs no
// memory and cannot fail.
#pragma once

#include "core/platform.hpp"

namespace tutti::core {

class timer_queue;

// Calls `fire(owner)` once, from the loop, when its time has come. Destroying or cancelling it removes it.
class timer {
 public:
  using function = void (*)(void* owner) noexcept;

  timer(function fire, void* owner) noexcept : fire_(fire), owner_(owner) {}
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;
  ~timer() { cancel(); }

  bool armed() const noexcept { return place_ != nullptr; }
  time_point when() const noexcept { return when_; }
  void cancel() noexcept;

 private:
  friend class timer_queue;
  function fire_;
  void* owner_;
  timer** place_ = nullptr;  // the pointer that points here: the queue's, its parent's or its sibling's
  timer* child_ = nullptr;   // the first of the timers that it precedes
  timer* next_ = nullptr;    // the next child of its parent
  time_point when_{};
};

// Arming takes O(1); cancelling and firing take O(log n), amortised.
class timer_queue {
 public:
  timer_queue() noexcept = default;
  timer_queue(const timer_queue&) = delete;
  timer_queue& operator=(const timer_queue&) = delete;
  ~timer_queue();
  // Arms `t`, or moves it if it is already armed.
  void arm(timer& t, time_point when) noexcept;
  // Fires all timers due at `now`, except those that they arm meanwhile. Returns whether any was due.
  bool fire_due(time_point now) noexcept;
  bool empty() const noexcept { return first_ == nullptr; }
  time_point next() const noexcept { return first_ == nullptr ? time_point::max() : first_->when_; }

 private:
  friend class timer;
  static void put(timer** place, timer* t) noexcept;
  static timer* meld(timer* a, timer* b) noexcept;
  static timer* meld_all(timer* first) noexcept;
  timer* first_ = nullptr;
};

}  // namespace tutti::core
