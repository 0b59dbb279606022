// SPDX-License-Identifier: Apache-2.0
#include "core/timer_queue.hpp"

#include <utility>

namespace tutti::core {

// Its children take its place: none of them is due before its parent.
void timer::cancel() noexcept {
  if (place_ == nullptr) return;
  timer** const place = std::exchange(place_, nullptr);
  timer* const next = std::exchange(next_, nullptr);
  timer* const heir = timer_queue::meld_all(std::exchange(child_, nullptr));
  if (heir == nullptr) return timer_queue::put(place, next);
  timer_queue::put(place, heir);
  timer_queue::put(&heir->next_, next);
}

timer_queue::~timer_queue() {
  while (first_ != nullptr) first_->cancel();
}

void timer_queue::put(timer** place, timer* t) noexcept {
  *place = t;
  if (t != nullptr) t->place_ = place;
}

// Of two separate timers, the later one becomes the other's first child.
timer* timer_queue::meld(timer* a, timer* b) noexcept {
  if (b->when_ < a->when_) std::swap(a, b);
  put(&b->next_, a->child_);
  put(&a->child_, b);
  return a;
}

// Melds siblings: in pairs on the way forward, all pairs together on the way back.
timer* timer_queue::meld_all(timer* first) noexcept {
  timer* pairs = nullptr;
  while (first != nullptr) {
    timer* a = first;
    timer* const b = a->next_;
    first = b != nullptr ? b->next_ : nullptr;
    if (b != nullptr) a = meld(a, b);
    a->next_ = pairs;
    pairs = a;
  }
  timer* all = nullptr;
  while (pairs != nullptr) {
    timer* const one = std::exchange(pairs, pairs->next_);
    one->next_ = nullptr;
    all = all != nullptr ? meld(all, one) : one;
  }
  return all;
}

void timer_queue::arm(timer& t, time_point when) noexcept {
  t.cancel();
  t.when_ = when;
  put(&first_, first_ != nullptr ? meld(first_, &t) : &t);
}

bool timer_queue::fire_due(time_point now) noexcept {
  // Collects all due timers first: those that they arm fire later, even if already due.
  timer* due = nullptr;
  for (timer** end = &due; first_ != nullptr && first_->when_ <= now;) {
    timer* const t = first_;
    t->cancel();
    timer_queue::put(end, t);
    end = &t->next_;
  }
  const bool any = due != nullptr;
  while (due != nullptr) {
    timer& t = *due;
    t.cancel();
    t.fire_(t.owner_);
  }
  return any;
}

}  // namespace tutti::core
