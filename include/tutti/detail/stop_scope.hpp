// SPDX-License-Identifier: Apache-2.0
// stop_scope: a part of a program that can be asked to end early, with everything awaited inside it.
//
// A coroutine's promise points to its scope and passes it on to the tasks that it awaits. A waiting operation
// joins the scope with a node in its own frame. So nothing is allocated, and a program without scopes pays
// one comparison per await.
#pragma once

#include <tutti/error.hpp>

#include <coroutine>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti::detail {

class stop_scope;

// A member of a scope that waits. Leaves the scope when destroyed.
class stop_node {
 public:
  // Called once when the scope is stopped, after the node has left it. May destroy the node.
  using function = void (*)(stop_node&) noexcept;

  explicit stop_node(function on_stop) noexcept : on_stop_(on_stop) {}
  stop_node(const stop_node&) = delete;
  stop_node& operator=(const stop_node&) = delete;
  ~stop_node() { leave(); }

  void join(stop_scope& scope) noexcept;
  // Joins the scope. If it has been stopped, calls the function at once instead.
  void join_or_stop(stop_scope& scope) noexcept;
  bool joined() const noexcept { return place_ != nullptr; }
  void leave() noexcept {
    if (place_ == nullptr) return;
    *place_ = next_;
    if (next_ != nullptr) next_->place_ = place_;
    place_ = nullptr;
    next_ = nullptr;
  }

 private:
  friend class stop_scope;
  function on_stop_;
  stop_node** place_ = nullptr;  // the pointer that points here
  stop_node* next_ = nullptr;
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

  // Makes this scope end together with `outer`, and at once if `outer` has been stopped. Null: no outer
  // scope.
  void inside(stop_scope* outer) noexcept {
    if (outer == nullptr) return;
    outer_.scope = outer;
    outer_.inner = this;
    outer_.join_or_stop(*outer);
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
      node.on_stop_(node);
      if (gone) return;
    }
    gone_ = nullptr;
  }

 private:
  friend class stop_node;
  struct link : stop_node {
    link() noexcept
        : stop_node([](stop_node& n) noexcept {
            auto& self = static_cast<link&>(n);
            self.inner->stop(self.scope->why_, self.scope->text_);
          }) {}
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

inline void stop_node::join(stop_scope& scope) noexcept {
  leave();
  next_ = scope.first_;
  if (next_ != nullptr) next_->place_ = &next_;
  place_ = &scope.first_;
  scope.first_ = this;
}

inline void stop_node::join_or_stop(stop_scope& scope) noexcept {
  if (scope.stopped()) {
    on_stop_(*this);
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
