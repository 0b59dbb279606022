// SPDX-License-Identifier: Apache-2.0
// A condition variable for coroutines of one loop. Waiters check their condition after each notification.
#pragma once

#include "device/attachment.hpp"

namespace tutti::gpu::detail {

// Use: while (!ready()) co_await condition.changed();
class async_condition {
 public:
  explicit async_condition(attachment& on) noexcept : on_(on) {}

  class awaiter final : public suspended {
   public:
    explicit awaiter(async_condition& of) noexcept : suspended(of.on_), of_(of) {}

   private:
    bool begin() override {
      of_.waiting_.push_back(*this);
      return true;
    }
    async_condition& of_;
  };
  awaiter changed() noexcept { return awaiter(*this); }

  void notify_all() noexcept {
    waiter_list now;
    while (waiter* w = waiting_.pop_front()) now.push_back(*w);
    while (waiter* w = now.pop_front()) on_.resume_soon(*w);
  }

 private:
  attachment& on_;
  waiter_list waiting_;
};

}  // namespace tutti::gpu::detail
