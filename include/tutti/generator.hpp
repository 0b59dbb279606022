// SPDX-License-Identifier: Apache-2.0
// generator<T>: a coroutine that yields values, awaited one by one.
#pragma once

#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/error.hpp>
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
// Cancellation: destroying the generator, or a coroutine that awaits next(), destroys the body where it waits.
// Cost: frames are recycled.
template <class T>
class [[nodiscard("a generator does nothing until next() is awaited")]] generator {
 public:
  class awaiter;
  class promise_type : public detail::task_promise_base {
   public:
    ~promise_type() {
      if (reader != nullptr) reader->body_ = nullptr;
    }
    generator get_return_object() noexcept {
      return generator(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    detail::task_promise_base::final_awaiter yield_value(T v) {
      value.emplace(std::move(v));
      return {};
    }
    void return_void() const noexcept {}

    std::optional<T> value;
    generator* owner = nullptr;
    awaiter* reader = nullptr;  // while next() is awaited
  };

  generator(generator&& other) noexcept { *this = std::move(other); }
  generator& operator=(generator&& other) noexcept {
    if (this != &other) frame_ = {};  // its body may be reading `other`
    frame_ = std::move(other.frame_);
    cut_off_ = std::exchange(other.cut_off_, false);
    if (frame_) frame_.get().promise().owner = this;
    return *this;
  }

  class awaiter {
   public:
    explicit awaiter(generator& of) noexcept : of_(&of) {}
    awaiter(const awaiter& unused) noexcept : of_(unused.of_) {}
    ~awaiter() {
      if (body_ != nullptr) body_->owner->cut_off();
    }
    bool await_ready() const noexcept { return !of_->frame_ || of_->frame_.get().done(); }
    template <class Parent>
    bool await_suspend(std::coroutine_handle<Parent> parent) noexcept {
      const std::coroutine_handle<promise_type> body = of_->frame_.get();
      promise_type& p = body.promise();
      second_ = p.reader != nullptr;
      if (second_) return false;
      p.value.reset();
      p.continuation = parent;
      p.scope = detail::scope_of(parent);
      p.reader = this;
      body_ = &p;
      return !detail::run_child(static_cast<detail::task_promise_base*>(&p), body);
    }
    std::optional<T> await_resume() {
      if (second_)
        throw error(errc::invalid_argument,
                    "a generator was awaited twice: another coroutine waits in next()");
      if (body_ == nullptr) {
        if (of_->cut_off_)
          throw error(errc::cancelled, "the generator has ended: a coroutine that awaited it was destroyed");
        return std::nullopt;
      }
      promise_type& p = *std::exchange(body_, nullptr);
      p.reader = nullptr;
      if (p.failure) std::rethrow_exception(std::exchange(p.failure, nullptr));
      return std::exchange(p.value, std::nullopt);
    }

   private:
    friend promise_type;
    generator* of_;
    promise_type* body_ = nullptr;  // while this waits for it
    bool second_ = false;
  };
  // Runs the body to its next co_yield, whose value it gives, or nothing when the body has returned. Await it
  // before the generator is moved.
  // Errors: those that the body throws. errc::cancelled if a coroutine was destroyed that awaited next().
  // errc::invalid_argument if another coroutine awaits next().
  awaiter next() noexcept { return awaiter(*this); }

 private:
  explicit generator(std::coroutine_handle<promise_type> h) noexcept : frame_(h) { h.promise().owner = this; }
  void cut_off() noexcept {
    cut_off_ = true;
    frame_.get().promise().reader = nullptr;
    frame_ = {};
  }

  detail::owned_frame<promise_type> frame_;
  bool cut_off_ = false;
};

}  // namespace tutti
