// SPDX-License-Identifier: Apache-2.0
// stop_scope: a part of a program that can be asked to end early, with everything awaited inside it.
//
// A coroutine's promise points to its scope and passes it on to the tasks that it awaits. A waiting operation
// joins the scope with a node in its own frame. A program without scopes pays one comparison per await.
#pragma once

#include <tutti/detail/flow.hpp>
#include <tutti/error.hpp>

#include <coroutine>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti::detail {

class stop_scope;

// A member of a scope that waits. Leaves the scope when destroyed.
class stop_node : public list_member<stop_node> {
 public:
  // Joins the scope. Null: does nothing.
  void join(stop_scope* scope) noexcept;
  // The same. If the scope has been stopped, calls on_stop() at once instead.
  void join_or_stop(stop_scope* scope) noexcept;

 protected:
  virtual ~stop_node() = default;

 private:
  friend class stop_scope;
  // Called once when the scope is stopped, after the node has left it. May destroy the node.
  virtual void on_stop(const stop_scope& stopped) noexcept = 0;
};

class stop_scope {
 public:
  stop_scope() noexcept = default;
  stop_scope(const stop_scope&) = delete;
  stop_scope& operator=(const stop_scope&) = delete;
  ~stop_scope() {
    if (gone_ != nullptr) *gone_ = true;
    while (first_ != nullptr) first_->leave();
  }

  // Makes this scope end together with `outer`, if there is one, and at once if that has been stopped.
  void inside(stop_scope* outer) noexcept {
    if (outer == nullptr) return;
    outer_.scope = outer;
    outer_.inner = this;
    outer_.join_or_stop(outer);
  }

  bool stopped() const noexcept { return why_ != errc::success; }
  errc why() const noexcept { return why_; }
  const std::string& text() const noexcept { return text_; }
  // Whether it has a deadline of its own, which replaces the communicators' default timeout.
  bool has_deadline() const noexcept {
    return has_deadline_ || (outer_.joined() && outer_.scope->has_deadline());
  }
  void set_deadline() noexcept { has_deadline_ = true; }

  // Asks all members to end. The first reason is kept. A member that ends at once may destroy the scope.
  void stop(errc why, std::string_view text) noexcept {
    if (stopped()) return;
    why_ = why;
    text_ = text;
    bool gone = false;
    gone_ = &gone;
    while (first_ != nullptr) {
      stop_node& node = *first_;
      node.leave();
      node.on_stop(*this);
      if (gone) return;
    }
    gone_ = nullptr;
  }

 private:
  friend class stop_node;
  struct link final : stop_node {
    void on_stop(const stop_scope& outer) noexcept override { inner->stop(outer.why_, outer.text_); }
    stop_scope* scope = nullptr;
    stop_scope* inner = nullptr;
  };

  stop_node* first_ = nullptr;
  link outer_;
  errc why_ = errc::success;
  bool has_deadline_ = false;
  bool* gone_ = nullptr;  // set while stop() runs
  std::string text_;
};

inline void stop_node::join(stop_scope* scope) noexcept {
  if (scope != nullptr) list_member::join(scope->first_);
}

inline void stop_node::join_or_stop(stop_scope* scope) noexcept {
  if (scope != nullptr && scope->stopped()) {
    on_stop(*scope);
  } else {
    join(scope);
  }
}

// Base of promises whose coroutines run within a scope.
struct scoped_promise {
  stop_scope* scope = nullptr;

  bool is_stopped() const noexcept { return scope != nullptr && scope->stopped(); }
  // Throws why the scope was stopped, if it was. The text begins with `what`.
  void throw_if_stopped(std::string_view what) const {
    if (is_stopped()) throw error(scope->why(), std::string(what) + ": " + scope->text());
  }
};

// The scope of the coroutine behind `h`; null if it has none, or is no coroutine of tutti.
template <class Promise>
stop_scope* scope_of(std::coroutine_handle<Promise> h) noexcept {
  if constexpr (std::is_base_of_v<scoped_promise, Promise>) {
    return h.promise().scope;
  } else {
    return nullptr;
  }
}

// A coroutine that waits until wake() is called or its scope is stopped; lives in its frame. begin_wait() and
// end_wait() of `Derived` are called before it waits and before it goes on.
template <class Derived>
class scope_waiter : stop_node {
 public:
  ~scope_waiter() override { take_back(); }

  // Does not wait if its scope has been stopped.
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) {
    waiting_ = h;
    stop_scope* const scope = scope_of(h);
    if (scope != nullptr && scope->stopped()) {
      stopped_ = scope;
      return false;
    }
    static_cast<Derived&>(*this).begin_wait();
    join(scope);
    return true;
  }
  // Resumes it when no other coroutine of this thread runs.
  void wake() noexcept {
    leave();
    static_cast<Derived&>(*this).end_wait();
    waking_ = true;
    resume_soon(waiting_);
  }
  // For a coroutine that is destroyed: takes wake() back. Returns whether it had been called.
  bool take_back() noexcept {
    if (waking_) forget_resumption(waiting_);
    return std::exchange(waking_, false);
  }
  // Throws the reason if the scope was stopped. The text begins with `what`.
  void resumed(std::string_view what) {
    waking_ = false;
    if (stopped_ != nullptr) throw error(stopped_->why(), std::string(what) + " ended: " + stopped_->text());
  }

 private:
  void on_stop(const stop_scope& stopped) noexcept override {
    stopped_ = &stopped;
    wake();
  }

  std::coroutine_handle<> waiting_;
  const stop_scope* stopped_ = nullptr;
  bool waking_ = false;
};

// Returns the promise of the awaiting coroutine.
struct own_promise {
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
    promise = &h.promise();
    return false;
  }
  scoped_promise* await_resume() const noexcept { return promise; }
  scoped_promise* promise = nullptr;
};

}  // namespace tutti::detail
