// SPDX-License-Identifier: Apache-2.0
// What waits for a time of the loop.
#include "base/text.hpp"
#include "core/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <tutti/detail/deadline.hpp>
#include <tutti/detail/task_promise.hpp>

namespace tutti::detail {
namespace {

std::string duration_in_text(std::chrono::steady_clock::duration d) {
  using namespace std::chrono;
  if (d > d.zero() && d < milliseconds(1))
    return fmt::format("{} us", duration_cast<microseconds>(d).count());
  return base::duration_text(duration_cast<milliseconds>(std::max(d, d.zero())));
}

core::loop_timer& timer_of(std::byte* storage) noexcept {
  return *std::launder(reinterpret_cast<core::loop_timer*>(storage));
}

}  // namespace

std::chrono::steady_clock::time_point after(std::chrono::steady_clock::time_point t,
                                            std::chrono::steady_clock::duration d) noexcept {
  using time_point = std::chrono::steady_clock::time_point;
  return d > d.zero() && t > time_point::max() - d ? time_point::max() : t + d;
}

loop_alarm::loop_alarm(void (*fire)(void* owner) noexcept, void* owner) noexcept {
  static_assert(sizeof(core::loop_timer) <= sizeof(timer_));
  new (timer_) core::loop_timer(fire, owner);
}

loop_alarm::~loop_alarm() { std::destroy_at(&timer_of(timer_)); }

void loop_alarm::set(std::chrono::steady_clock::time_point when, std::string_view what,
                     std::string_view cure) {
  timer_of(timer_).arm(core::loop::here(what, cure), when);
}

void loop_alarm::clear() noexcept { timer_of(timer_).disarm(); }

deadline_scope::deadline_scope(std::chrono::steady_clock::time_point when,
                               std::chrono::steady_clock::duration asked)
    : asked_(asked),
      alarm_(
          [](void* self) noexcept {
            auto& d = *static_cast<deadline_scope*>(self);
            d.stop(errc::timed_out,
                   d.asked_ < d.asked_.max()
                       ? fmt::format("not done within {} (with_timeout)", duration_in_text(d.asked_))
                       : "the deadline of with_deadline has passed");
          },
          this) {
  set_deadline();
  alarm_.set(when, "a deadline was set", "set it in a task that runs there");
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
