// SPDX-License-Identifier: Apache-2.0
// pause: suspends a coroutine of the library for a time, by the engine's clock.
#pragma once

#include "core/loop.hpp"

#include <coroutine>
#include <tutti/detail/flow.hpp>

namespace tutti::core {

// co_await pause(loop, 1ms). The caller keeps the loop alive meanwhile.
class pause {
 public:
  pause(core::loop& l, duration how_long) noexcept
      : loop_(l), until_(l.engine().platform().now() + how_long), timer_(&fire, this) {}
  pause(const pause&) = delete;
  pause& operator=(const pause&) = delete;

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) {
    waiting_ = h;
    loop_.engine().timers().arm(timer_, until_);
    loop_.wake();  // a parked loop sleeps until a time chosen before this one was known
  }
  void await_resume() const noexcept {}

 private:
  static void fire(void* self) noexcept { detail::resume_bounded(static_cast<pause*>(self)->waiting_); }

  core::loop& loop_;
  const time_point until_;
  timer timer_;
  std::coroutine_handle<> waiting_;
};

}  // namespace tutti::core
