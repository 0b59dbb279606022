// SPDX-License-Identifier: Apache-2.0
// Waiters for events of a device. They live in coroutine frames or operations, and unlink themselves.
#pragma once

#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/error.hpp>

#include <chrono>
#include <coroutine>
#include <optional>

namespace tutti::gpu::detail {

class attachment;

inline errc code_of(const error& e) noexcept { return static_cast<errc>(e.code().value()); }

class waiter {
 public:
  waiter() noexcept = default;
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;
  ~waiter() { unlink(); }

  bool linked() const noexcept { return next_ != nullptr; }
  void unlink() noexcept {
    if (!linked()) return;
    previous_->next_ = next_;
    next_->previous_ = previous_;
    next_ = previous_ = nullptr;
  }
  // The first failure is kept.
  void set_failure(const error& e) noexcept {
    if (!failure_) failure_ = e;
  }
  const std::optional<error>& failure() const noexcept { return failure_; }
  void rethrow() const {
    if (failure_) throw *failure_;
  }
  // What it waits for has come, or failed.
  virtual void done() noexcept {}

  bool immediate = false;  // completion runs no code of the program
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

 private:
  friend class waiter_list;
  waiter* next_ = nullptr;
  waiter* previous_ = nullptr;
  std::optional<error> failure_;
};

class waiter_list {
 public:
  waiter_list() noexcept { head_.next_ = head_.previous_ = &head_; }
  waiter_list(const waiter_list&) = delete;
  waiter_list& operator=(const waiter_list&) = delete;
  ~waiter_list() {
    while (pop_front() != nullptr) {
    }
    head_.next_ = head_.previous_ = nullptr;
  }
  bool empty() const noexcept { return head_.next_ == &head_; }
  void push_back(waiter& w) noexcept {
    w.next_ = &head_;
    w.previous_ = head_.previous_;
    head_.previous_->next_ = &w;
    head_.previous_ = &w;
  }
  waiter* front() const noexcept { return empty() ? nullptr : head_.next_; }
  waiter* after(const waiter& w) const noexcept { return w.next_ == &head_ ? nullptr : w.next_; }
  waiter* pop_front() noexcept {
    waiter* const w = front();
    if (w != nullptr) w->unlink();
    return w;
  }

 private:
  mutable waiter head_;
};

// Awaiter of a coroutine that waits in a list, until attachment::resume_soon() resumes it. It resumes with the
// reason when its scope is stopped.
class waits_in : public waiter, tutti::detail::stop_node {
 public:
  waits_in(attachment& on, waiter_list& list) noexcept;

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) {
    handle_ = h;
    scope_ = tutti::detail::scope_of(h);
    if (scope_ != nullptr && scope_->stopped()) {
      set_failure(error(scope_->why(), "the operation was not started: " + scope_->text()));
      return false;
    }
    list_.push_back(*this);
    if (scope_ != nullptr) join(*scope_);
    return true;
  }
  void await_resume() const { rethrow(); }
  void done() noexcept final;

 private:
  attachment& on_;
  waiter_list& list_;
  std::coroutine_handle<> handle_;
  tutti::detail::stop_scope* scope_ = nullptr;
};

}  // namespace tutti::gpu::detail
