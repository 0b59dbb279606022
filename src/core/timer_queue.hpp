// SPDX-License-Identifier: Apache-2.0
// The engine's timers, ordered by a tree through the timers themselves: arming one cannot fail.
#pragma once

#include "core/platform.hpp"

#include <boost/intrusive/set.hpp>

namespace tutti::core {

using timer_hook = boost::intrusive::set_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>,
                                                   boost::intrusive::optimize_size<true>>;

// Calls `fire(owner)` once, from the loop, when its time has come. Destroying or cancelling it removes it.
class timer : public timer_hook {
 public:
  using function = void (*)(void* owner) noexcept;

  timer(function fire, void* owner) noexcept : fire_(fire), owner_(owner) {}
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;

  bool armed() const noexcept { return is_linked(); }
  time_point when() const noexcept { return when_; }
  void cancel() noexcept { unlink(); }
  bool operator<(const timer& other) const noexcept { return when_ < other.when_; }

 private:
  friend class timer_queue;
  function fire_;
  void* owner_;
  time_point when_{};
};

// Arming, cancelling and firing take O(log n), amortised.
class timer_queue {
 public:
  // Arms `t`, or moves it if it is already armed.
  void arm(timer& t, time_point when) noexcept {
    t.cancel();
    t.when_ = when;
    timers_.insert(t);
  }
  // Fires all timers due at `now`, except those that they arm meanwhile. Returns whether any was due.
  bool fire_due(time_point now) noexcept {
    if (empty() || next() > now) return false;
    ordered due;
    while (!empty() && next() <= now) due.insert(due.end(), first_of(timers_));
    while (!due.empty()) {
      timer& t = first_of(due);
      t.fire_(t.owner_);
    }
    return true;
  }
  bool empty() const noexcept { return timers_.empty(); }
  time_point next() const noexcept { return empty() ? time_point::max() : timers_.begin()->when_; }

 private:
  using ordered = boost::intrusive::multiset<timer, boost::intrusive::constant_time_size<false>>;
  // Takes the first one out.
  static timer& first_of(ordered& from) noexcept {
    timer& t = *from.begin();
    t.cancel();
    return t;
  }
  ordered timers_;
};

}  // namespace tutti::core
