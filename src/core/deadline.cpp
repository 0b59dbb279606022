// SPDX-License-Identifier: Apache-2.0
// What waits for a time of the loop: deadlines of scopes, and sleep_for.
#include "base/text.hpp"
#include "core/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string>
#include <tutti/detail/deadline.hpp>
#include <tutti/detail/flow.hpp>
#include <tutti/detail/task_face.hpp>
#include <tutti/sleep.hpp>
#include <utility>

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
