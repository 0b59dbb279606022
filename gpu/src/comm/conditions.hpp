// SPDX-License-Identifier: Apache-2.0
// What coroutines of one loop wait for: conditions, and points in streams.
#pragma once

#include "device/attachment.hpp"

namespace tutti::gpu::detail {

// A condition variable. Use: while (!ready()) co_await condition.changed();
class async_condition {
 public:
  explicit async_condition(attachment& on) noexcept : on_(on) {}
  waits_in changed() noexcept { return waits_in(on_, waiting_); }
  void notify_all() noexcept {
    waiter_list now;
    while (waiter* w = waiting_.pop_front()) now.push_back(*w);
    while (waiter* w = now.pop_front()) on_.resume_soon(*w);
  }

 private:
  attachment& on_;
  waiter_list waiting_;
};

// A point in a stream that coroutines wait for.
class mark final : waiter {
 public:
  mark() noexcept { immediate = true; }
  // Puts the point behind the work now in `s`, which keeps the memory until then.
  void set(stream_state& s, keeps alive) {
    point& p = s.signal();
    p.alive = std::move(alive);
    on_ = &s.on();
    on_->wait_for(p, *this, false);
  }
  bool is_set() const noexcept { return on_ != nullptr; }
  // Or failed: an await then throws at once.
  bool has_passed() const noexcept { return is_set() && !linked(); }

  class awaiter final : public waits_in {
   public:
    explicit awaiter(mark& m) noexcept : waits_in(*m.on_, m.waiting_), mark_(m) {}
    bool await_ready() const noexcept { return mark_.has_passed(); }
    void await_resume() const {
      rethrow();
      mark_.rethrow();
    }

   private:
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
