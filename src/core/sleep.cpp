// SPDX-License-Identifier: Apache-2.0
#include "core/loop.hpp"

#include <new>
#include <tutti/detail/flow.hpp>
#include <tutti/error.hpp>
#include <tutti/sleep.hpp>
#include <utility>

namespace tutti::detail {

void sleeping::begin() {
  static_assert(sizeof(core::loop_timer) <= sizeof(timer_));
  core::loop& loop = core::loop::here("sleep_for was awaited", "await it in a task that runs there");
  auto* const timer = new (timer_) core::loop_timer(
      [](void* self) noexcept {
        auto& s = *static_cast<sleeping*>(self);
        s.leave();
        s.end();
        resume_bounded(s.waiting_);
      },
      this);
  asleep_ = true;
  timer->arm(loop, after(loop.engine().platform().now(), how_long_));
}

void sleeping::end() noexcept {
  if (std::exchange(asleep_, false)) std::launder(reinterpret_cast<core::loop_timer*>(timer_))->~loop_timer();
}

sleeping::~sleeping() {
  end();
  if (stopped_ != nullptr) forget_resumption(waiting_);
}

void sleeping::ask(stop_node& node) noexcept {
  auto& self = static_cast<sleeping&>(node);
  self.stopped_ = self.scope_;
  self.end();
  resume_soon(self.waiting_);
}

void sleeping::await_resume() const {
  if (stopped_ != nullptr) throw error(stopped_->why(), "sleep_for ended: " + stopped_->text());
}

}  // namespace tutti::detail
