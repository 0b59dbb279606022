// SPDX-License-Identifier: Apache-2.0
// channel: a queue of values between coroutines of one thread.
#pragma once

#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>

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
  // One waiting coroutine.
  struct waiter : detail::scope_waiter<waiter> {
    waiter(channel& c, bool sends) noexcept : of(c), is_sender(sends) {}
    ~waiter() {
      end_wait();
      // Destroyed before it went on: the next receiver gets the value.
      if (this->take_back() && !is_sender && value && !of.hand_over(value))
        of.values_.push_front(std::move(*value));
    }
    void begin_wait() {
      (is_sender ? of.senders_ : of.receivers_).push_back(this);
      queued = true;
    }
    void end_wait() noexcept {
      if (std::exchange(queued, false)) std::erase(is_sender ? of.senders_ : of.receivers_, this);
    }

    channel& of;
    const bool is_sender;
    bool queued = false;
    std::optional<T> value;
  };

 public:
  // Makes an open channel.
  explicit channel(std::size_t capacity) : capacity_(capacity) {}
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  class [[nodiscard("nothing is sent until it is awaited")]] sending : waiter {
   public:
    sending(channel& c, T v) : waiter(c, true) { this->value.emplace(std::move(v)); }
    // Moves a send that has not been awaited.
    sending(sending&& other) : waiter(other.of, true) { this->value = std::move(other.value); }
    bool await_ready() { return this->of.closed_ || this->of.take(this->value); }
    using waiter::await_suspend;
    // False if the channel is closed and the value was not taken.
    bool await_resume() {
      this->resumed("waiting at a channel");
      return !this->value;
    }
  };
  class [[nodiscard("nothing is received until it is awaited")]] receiving : waiter {
   public:
    explicit receiving(channel& c) noexcept : waiter(c, false) {}
    receiving(receiving&& other) noexcept : receiving(other.of) {}
    bool await_ready() {
      this->value = this->of.next();
      return this->value || this->of.closed_;
    }
    using waiter::await_suspend;
    // Empty if the channel is closed and holds no value.
    std::optional<T> await_resume() {
      this->resumed("waiting at a channel");
      return std::move(this->value);
    }
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
  // Closes the channel, which takes no more values, and resumes all waiting coroutines. Values in the queue can
  // still be received.
  void close() {
    const detail::resume_at_end later;  // the last one may destroy the channel
    closed_ = true;
    while (!senders_.empty()) senders_.front()->wake();
    while (!receivers_.empty()) receivers_.front()->wake();
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
    receivers_.front()->wake();
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
      senders_.front()->wake();
      return v;
    }
    // Steps that may throw come first, so that no value is lost.
    if (!senders_.empty()) values_.push_back(std::move(*senders_.front()->value));
    if (values_.empty()) return v;
    v.emplace(std::move(values_.front()));
    values_.pop_front();
    if (senders_.empty()) return v;
    senders_.front()->value.reset();
    senders_.front()->wake();
    return v;
  }

  const std::size_t capacity_;
  bool closed_ = false;
  std::deque<T> values_;
  std::deque<waiter*> senders_;
  std::deque<waiter*> receivers_;
};

}  // namespace tutti
