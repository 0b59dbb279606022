// SPDX-License-Identifier: Apache-2.0
// A coroutine of the library's own waits for a time, by the engine's clock.
#pragma once

#include "core/loop.hpp"

#include <coroutine>
#include <tutti/detail/flow.hpp>

namespace tutti::core {

// co_await pause(loop, 1ms). The loop is held by somebody meanwhile.
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
    loop_.wake();  // a parked loop sleeps until an earlier time than this was known
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
