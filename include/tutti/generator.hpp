// SPDX-License-Identifier: Apache-2.0
// generator<T>: a coroutine that yields values, awaited one by one.
#pragma once

#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/task.hpp>

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace tutti {

// An asynchronous generator: its body may await anything between its co_yields.
//
//   generator<int> squares(communicator world) { for (...) { co_await world.recv(x, 0); co_yield x * x; } }
//   auto all = squares(world);
//   for (;;) { auto one = co_await all.next(); if (!one) break; use(*one); }
//
// The body runs only while next() is awaited.
// Cancellation: destroying the generator destroys its body at the point where it waits.
// Cost: frames are recycled.
template <class T>
class [[nodiscard("a generator does nothing until next() is awaited")]] generator {
 public:
  class promise_type : public detail::task_promise_base {
   public:
    generator get_return_object() noexcept {
      return generator(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    struct pausing {
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> h) const noexcept {
        promise_type& p = h.promise();
        if (detail::finished_inline(static_cast<detail::task_promise_base*>(&p))) return;
        if (p.continuation) detail::resume_bounded(std::exchange(p.continuation, {}));
      }
      void await_resume() const noexcept {}
    };
    pausing final_suspend() const noexcept { return {}; }
    pausing yield_value(T v) {
      value.emplace(std::move(v));
      return {};
    }
    void return_void() const noexcept {}

    std::optional<T> value;
  };

  generator(generator&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  generator& operator=(generator&& other) noexcept {
    if (this != &other) {
      if (handle_) detail::destroy_frame(handle_);
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~generator() {
    if (handle_) detail::destroy_frame(handle_);
  }

  class awaiter {
   public:
    explicit awaiter(std::coroutine_handle<promise_type> h) noexcept : handle_(h) {}
    bool await_ready() const noexcept { return !handle_ || handle_.done(); }
    template <class Parent>
    bool await_suspend(std::coroutine_handle<Parent> parent) const noexcept {
      const std::coroutine_handle<promise_type> body = handle_;
      promise_type& p = body.promise();
      p.value.reset();
      p.continuation = parent;
      p.scope = detail::scope_of(parent);
      return !detail::run_child(static_cast<detail::task_promise_base*>(&p), body);
    }
    std::optional<T> await_resume() const {
      if (!handle_) return std::nullopt;
      promise_type& p = handle_.promise();
      if (p.failure) std::rethrow_exception(std::exchange(p.failure, nullptr));
      return std::exchange(p.value, std::nullopt);
    }

   private:
    std::coroutine_handle<promise_type> handle_;
  };
  // Runs the body to its next co_yield. co_await returns the yielded value, or nothing when the body has
  // returned.
  // Errors: those that the body throws.
  awaiter next() noexcept { return awaiter(handle_); }

 private:
  explicit generator(std::coroutine_handle<promise_type> h) noexcept : handle_(h) {}
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace tutti
