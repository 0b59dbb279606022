// SPDX-License-Identifier: Apache-2.0
// A condition variable for coroutines of one loop. Waiters check their condition after each notification.
#pragma once

#include "device/attachment.hpp"

#include <string>

namespace tutti::gpu::detail {

// Use: while (!ready()) co_await condition.changed();
class async_condition {
 public:
  explicit async_condition(attachment& on) noexcept : on_(on) {}

  class awaiter : suspended {
   public:
    explicit awaiter(async_condition& of) noexcept : suspended(&stop), of_(of) {}
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) {
      if (!begin(h, "the operation")) return false;
      of_.waiting_.push_back(*this);
      joined();
      return true;
    }
    void await_resume() const { rethrow(); }

   private:
    static void stop(suspended& self, errc why, const std::string& text) noexcept {
      auto& a = static_cast<awaiter&>(self);
      a.set_failure(why, text);
      a.of_.on_.resume_soon(a);
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
