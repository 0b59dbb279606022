// SPDX-License-Identifier: Apache-2.0
// channel: a queue of values between coroutines of one thread.
#pragma once

#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/error.hpp>

#include <coroutine>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

namespace tutti {

// A queue of at most `capacity` values. With capacity 0, a sender waits until its value is received.
// Coroutines are served in the order in which they began to wait. One that is served goes on when the
// coroutine that served it waits or ends. Belongs to one thread; outlives the coroutines that wait at it.
template <class T>
class channel {
  // One waiting coroutine; lives in its frame.
  struct waiter : detail::stop_node {
    waiter(channel& c, bool sends) noexcept : stop_node(&ask), of(c), is_sender(sends) {}
    ~waiter() {
      unlink();
      if (!waking) return;
      detail::forget_resumption(waiting);
      // Destroyed before it went on: the next receiver gets the value.
      if (!is_sender && value && !of.hand_over(value)) of.values_.push_front(std::move(*value));
    }
    static void ask(detail::stop_node& node) noexcept {
      auto& self = static_cast<waiter&>(node);
      self.stopped = self.scope;
      self.wake();
    }
    void wake() noexcept {
      unlink();
      waking = true;
      detail::resume_soon(waiting);
    }
    template <class Promise>
    bool wait(std::coroutine_handle<Promise> h) {
      waiting = h;
      scope = detail::scope_of(h);
      if (scope != nullptr && scope->stopped()) {
        stopped = scope;
        return false;
      }
      (is_sender ? of.senders_ : of.receivers_).push_back(this);
      queued = true;
      if (scope != nullptr) this->join(*scope);
      return true;
    }
    void unlink() noexcept {
      if (!std::exchange(queued, false)) return;
      std::erase(is_sender ? of.senders_ : of.receivers_, this);
    }
    void resumed() {
      waking = false;
      if (stopped != nullptr) throw error(stopped->why(), "waiting at a channel ended: " + stopped->text());
    }

    channel& of;
    const bool is_sender;
    bool queued = false;
    bool waking = false;
    detail::stop_scope* scope = nullptr;
    detail::stop_scope* stopped = nullptr;
    std::coroutine_handle<> waiting;
    std::optional<T> value;
  };

 public:
  // Makes an open channel.
  explicit channel(std::size_t capacity) : capacity_(capacity) {}
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  class [[nodiscard("nothing is sent until it is awaited")]] sending {
   public:
    sending(channel& c, T value) : of_(c), wait_(c, true) { wait_.value.emplace(std::move(value)); }
    // Moves a send that has not been awaited.
    sending(sending&& other) : of_(other.of_), wait_(of_, true) {
      wait_.value = std::move(other.wait_.value);
    }
    bool await_ready() { return of_.closed_ || of_.take(wait_.value); }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) {
      return wait_.wait(h);
    }
    // False if the channel is closed and the value was not taken.
    bool await_resume() {
      wait_.resumed();
      return !wait_.value;
    }

   private:
    channel& of_;
    waiter wait_;
  };
  class [[nodiscard("nothing is received until it is awaited")]] receiving {
   public:
    explicit receiving(channel& c) noexcept : of_(c), wait_(c, false) {}
    receiving(receiving&& other) noexcept : receiving(other.of_) {}
    bool await_ready() {
      wait_.value = of_.next();
      return wait_.value || of_.closed_;
    }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) {
      return wait_.wait(h);
    }
    // Empty if the channel is closed and holds no value.
    std::optional<T> await_resume() {
      wait_.resumed();
      return std::move(wait_.value);
    }

   private:
    channel& of_;
    waiter wait_;
  };

  // Sends a value. co_await returns whether the channel took it: false if the channel is closed.
  // Completes: when the queue has room, or a receiver takes the value.
  // Errors: the reason of a stopped scope.
  sending send(T value) { return sending(*this, std::move(value)); }
  // Receives the next value. co_await returns nothing if the channel is closed and empty.
  // Errors: the reason of a stopped scope.
  receiving receive() noexcept { return receiving(*this); }
  // Sends a value if that needs no waiting; returns whether it did.
  bool try_send(T value) {
    std::optional<T> v(std::move(value));
    return !closed_ && take(v);
  }
  // Closes the channel: it takes no more values. Values in the queue can still be received. Resumes all
  // waiting coroutines.
  void close() {
    const detail::resume_at_end later;  // the last one may destroy the channel
    closed_ = true;
    while (!senders_.empty()) wake(senders_);
    while (!receivers_.empty()) wake(receivers_);
  }
  // Whether close() has been called.
  bool closed() const noexcept { return closed_; }
  // The number of values in the queue.
  std::size_t size() const noexcept { return values_.size(); }

 private:
  // Gives the value to the first waiting receiver, if there is one.
  bool hand_over(std::optional<T>& value) {
    if (receivers_.empty()) return false;
    receivers_.front()->value = std::move(value);
    value.reset();
    wake(receivers_);
    return true;
  }
  // Takes the value if it need not wait.
  bool take(std::optional<T>& value) {
    if (hand_over(value)) return true;
    if (values_.size() >= capacity_) return false;
    values_.push_back(std::move(*value));
    value.reset();
    return true;
  }
  std::optional<T> next() {
    std::optional<T> v;
    if (values_.empty() && !senders_.empty()) {
      v.emplace(std::move(*senders_.front()->value));
      senders_.front()->value.reset();
      wake(senders_);
      return v;
    }
    // Steps that may throw come first, so that no value is lost.
    if (!senders_.empty()) values_.push_back(std::move(*senders_.front()->value));
    if (values_.empty()) return v;
    v.emplace(std::move(values_.front()));
    values_.pop_front();
    if (senders_.empty()) return v;
    senders_.front()->value.reset();
    wake(senders_);
    return v;
  }
  static void wake(std::deque<waiter*>& queue) {
    waiter& w = *queue.front();
    w.leave();
    w.wake();
  }

  const std::size_t capacity_;
  bool closed_ = false;
  std::deque<T> values_;
  std::deque<waiter*> senders_;
  std::deque<waiter*> receivers_;
};

}  // namespace tutti
