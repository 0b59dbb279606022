// SPDX-License-Identifier: Apache-2.0
#include "core/loop.hpp"

#include <new>
#include <tutti/detail/flow.hpp>
#include <tutti/error.hpp>
#include <tutti/sleep.hpp>
#include <utility>

namespace tutti::detail {

void sleeping::begin() {
  static_assert(sizeof(core::timer) <= sizeof(timer_));
  core::loop* const loop = &core::loop::here("sleep_for was awaited", "await it in a task that runs there");
  auto* const timer = new (timer_) core::timer(
      [](void* self) noexcept {
        auto& s = *static_cast<sleeping*>(self);
        s.leave();
        s.end();
        resume_bounded(s.waiting_);
      },
      this);
  try {
    loop->engine().timers().arm(*timer, after(loop->engine().platform().now(), how_long_));
  } catch (...) {
    timer->~timer();
    throw;
  }
  loop_ = loop;
  loop->hold();
  loop->wake();  // a parked loop sleeps until a time chosen before this one was known
}

void sleeping::end() noexcept {
  auto* const loop = static_cast<core::loop*>(std::exchange(loop_, nullptr));
  if (loop == nullptr) return;
  std::launder(reinterpret_cast<core::timer*>(timer_))->~timer();
  loop->release();
}

sleeping::~sleeping() { end(); }

void sleeping::ask(stop_node& node) noexcept {
  auto& self = static_cast<sleeping&>(node);
  self.stopped_ = self.scope_;
  self.end();
  resume_bounded(self.waiting_);
}

void sleeping::await_resume() const {
  if (stopped_ != nullptr) throw error(stopped_->why(), "sleep_for ended: " + stopped_->text());
}

}  // namespace tutti::detail
