// SPDX-License-Identifier: Apache-2.0
#include "core/timer_queue.hpp"

namespace tutti::core {

void timer::cancel() noexcept {
  if (queue_ != nullptr) queue_->remove(*this);
}

timer_queue::~timer_queue() {
  for (timer* t : heap_) t->queue_ = nullptr;
}

void timer_queue::arm(timer& t, time_point when) {
  t.cancel();
  heap_.push_back(&t);  // the only step that may throw
  t.queue_ = this;
  t.when_ = when;
  t.place_ = heap_.size() - 1;
  sift_up(t.place_);
}

bool timer_queue::fire_due(time_point now) noexcept {
  bool fired = false;
  while (!heap_.empty() && heap_.front()->when_ <= now) {
    timer& t = *heap_.front();
    remove(t);
    fired = true;
    t.fire_(t.owner_);
  }
  return fired;
}

void timer_queue::remove(timer& t) noexcept {
  const std::size_t place = t.place_;
  t.queue_ = nullptr;
  timer* last = heap_.back();
  heap_.pop_back();
  if (last == &t) return;
  put(place, last);
  sift_up(place);
  sift_down(last->place_);
}

void timer_queue::put(std::size_t place, timer* t) noexcept {
  heap_[place] = t;
  t->place_ = place;
}

void timer_queue::sift_up(std::size_t place) noexcept {
  timer* t = heap_[place];
  while (place > 0) {
    const std::size_t parent = (place - 1) / 2;
    if (heap_[parent]->when_ <= t->when_) break;
    put(place, heap_[parent]);
    place = parent;
  }
  put(place, t);
}

void timer_queue::sift_down(std::size_t place) noexcept {
  timer* t = heap_[place];
  for (;;) {
    std::size_t child = 2 * place + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1]->when_ < heap_[child]->when_) ++child;
    if (t->when_ <= heap_[child]->when_) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, t);
}

}  // namespace tutti::core
