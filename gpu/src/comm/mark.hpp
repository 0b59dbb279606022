// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/attachment.hpp"

#include <coroutine>
#include <string>
#include <utility>

namespace tutti::gpu::detail {

// Lets a coroutine wait for a point in a stream.
class mark : waiter {
 public:
  mark() noexcept : waiter([](waiter& w) noexcept { static_cast<mark&>(w).passed(); }) { immediate = true; }
  void set(attachment& on, point& p) {
    on_ = &on;
    set_ = true;
    on.wait_for(p, *this, false);
  }
  bool is_set() const noexcept { return set_; }
  bool has_passed() const noexcept { return set_ && !linked(); }  // or failed: an await then throws at once

  class awaiter : suspended {
   public:
    explicit awaiter(mark& m) noexcept : suspended(&stop), mark_(m) {}
    ~awaiter() {
      if (mark_.waiting_ == this) mark_.waiting_ = nullptr;
    }
    bool await_ready() const noexcept { return !mark_.set_ || !mark_.linked(); }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) {
      if (!begin(h, "the operation")) return false;
      mark_.waiting_ = this;
      joined();
      return true;
    }
    void await_resume() const {
      rethrow();
      mark_.rethrow();
    }

   private:
    friend class mark;
    static void stop(suspended& self, errc why, const std::string& text) noexcept {
      auto& a = static_cast<awaiter&>(self);
      a.set_failure(why, text);
      a.mark_.waiting_ = nullptr;
      a.mark_.on_->resume_soon(a);
    }
    mark& mark_;
  };
  awaiter operator co_await() noexcept { return awaiter(*this); }

 private:
  friend class awaiter;
  void passed() noexcept {
    if (waiting_ != nullptr) on_->resume_soon(*std::exchange(waiting_, nullptr));
  }
  attachment* on_ = nullptr;
  bool set_ = false;
  awaiter* waiting_ = nullptr;
};

}  // namespace tutti::gpu::detail
