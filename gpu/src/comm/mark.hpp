// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/attachment.hpp"

namespace tutti::gpu::detail {

// Lets a coroutine wait for a point in a stream.
class mark final : waiter {
 public:
  mark() noexcept { immediate = true; }
  void set(attachment& on, point& p) {
    on_ = &on;
    on.wait_for(p, *this, false);
  }
  bool is_set() const noexcept { return on_ != nullptr; }
  // Or failed: an await then throws at once.
  bool has_passed() const noexcept { return is_set() && !linked(); }

  class awaiter final : public suspended {
   public:
    explicit awaiter(mark& m) noexcept : suspended(*m.on_), mark_(m) {}
    bool await_ready() const noexcept { return mark_.has_passed(); }
    void await_resume() const {
      rethrow();
      mark_.rethrow();
    }

   private:
    bool begin() override {
      mark_.waiting_.push_back(*this);
      return true;
    }
    mark& mark_;
  };
  awaiter operator co_await() noexcept { return awaiter(*this); }  // once it is set

 private:
  void done() noexcept override {
    while (waiter* w = waiting_.pop_front()) on_->resume_soon(*w);
  }
  attachment* on_ = nullptr;
  waiter_list waiting_;
};

}  // namespace tutti::gpu::detail
