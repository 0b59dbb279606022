// SPDX-License-Identifier: Apache-2.0
// Coroutines of one loop that wait for something to change, and look again when it may have.
#pragma once

#include "device/attachment.hpp"

#include <string>

namespace tutti::gpu::detail {

//   while (!is_so()) co_await news.next();
class news {
 public:
  explicit news(attachment& on) noexcept : on_(on) {}

  class awaiter : suspended {
   public:
    explicit awaiter(news& of) noexcept : suspended(&stop), of_(of) {}
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
    news& of_;
  };
  awaiter next() noexcept { return awaiter(*this); }

  void tell() noexcept {
    waiter_list now;
    while (waiter* w = waiting_.pop_front()) now.push_back(*w);
    while (waiter* w = now.pop_front()) on_.resume_soon(*w);
  }

 private:
  attachment& on_;
  waiter_list waiting_;
};

}  // namespace tutti::gpu::detail
