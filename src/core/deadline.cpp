// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"
#include "core/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string>
#include <tutti/detail/deadline.hpp>
#include <tutti/detail/task_face.hpp>

namespace tutti::detail {
namespace {

std::string duration_in_text(std::chrono::steady_clock::duration d) {
  using namespace std::chrono;
  if (d > d.zero() && d < milliseconds(1))
    return fmt::format("{} us", duration_cast<microseconds>(d).count());
  return base::duration_text(duration_cast<milliseconds>(std::max(d, d.zero())));
}

}  // namespace

deadline::deadline(stop_scope& scope, std::chrono::steady_clock::time_point when,
                   std::optional<std::chrono::steady_clock::duration> asked)
    : scope_(scope), asked_(asked) {
  static_assert(sizeof(core::loop_timer) <= sizeof(timer_));
  core::loop& loop = core::loop::here("a deadline was set", "set it in a task that runs there");
  auto* const timer = new (timer_) core::loop_timer(
      [](void* self) noexcept {
        auto& d = *static_cast<deadline*>(self);
        d.passed_ = true;
        if (!d.asked_)
          d.scope_.stop(errc::timed_out, "the deadline of with_deadline has passed");
        else
          d.scope_.stop(errc::timed_out,
                        fmt::format("not done within {} (with_timeout)", duration_in_text(*d.asked_)));
      },
      this);
  timer->arm(loop, when);
}

deadline::~deadline() { std::launder(reinterpret_cast<core::loop_timer*>(timer_))->~loop_timer(); }

std::chrono::steady_clock::time_point loop_time() noexcept {
  core::loop* const loop = core::loop::current();
  return loop != nullptr ? loop->engine().platform().now() : core::clock::now();
}

boost::asio::io_context::executor_type executor_of_this_thread() {
  return core::loop::here("a task was started by a completion token",
                          "post to get_executor() of its runtime first")
      .executor();
}

}  // namespace tutti::detail
