// SPDX-License-Identifier: Apache-2.0
#include "comm/pending_operations.hpp"

#include <fmt/format.h>

namespace tutti::comm {
namespace {

// A rank that has waited this long makes sure that it would notice the other's end.
constexpr auto check_after = std::chrono::milliseconds(20);

}  // namespace

std::string pending_operations::timeout_text() const {
  return fmt::format("timed out after {} s", std::chrono::duration<double>(timeout_).count());
}

void pending_operations::arm_timers(core::time_point now) noexcept {
  core::timer_queue& timers = engine_.timers();
  if (!check_timer_.armed()) timers.arm(check_timer_, now + check_after);
  if (core::completion* const first = waiting_.front(); first != nullptr && !timer_.armed())
    timers.arm(timer_, first->started + timeout_);
}

void pending_operations::expire(void* self) noexcept {
  auto& p = *static_cast<pending_operations*>(self);
  const core::time_point now = p.engine_.now();
  while (core::completion* a = p.waiting_.front()) {
    if (a->started + p.timeout_ > now) {
      p.engine_.timers().arm(p.timer_, a->started + p.timeout_);
      return;
    }
    p.waiting_.pop_front();
    a->on_expire(*a);
  }
}

}  // namespace tutti::comm
