// SPDX-License-Identifier: Apache-2.0
// Waiters for events of a device. They live in coroutine frames or operations, and unlink themselves.
#pragma once

#include <tutti/detail/stop_scope.hpp>
#include <tutti/error.hpp>

#include <boost/intrusive/list.hpp>
#include <chrono>
#include <coroutine>
#include <optional>

namespace tutti::gpu::detail {

class attachment;

inline errc code_of(const error& e) noexcept { return static_cast<errc>(e.code().value()); }

class waiter
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  waiter() noexcept = default;
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;

  // The first failure is kept.
  void set_failure(const error& e) noexcept {
    if (!failure_) failure_ = e;
  }
  const std::optional<error>& failure() const noexcept { return failure_; }
  void rethrow() const {
    if (failure_) throw *failure_;
  }
  // What it waits for has come, or failed.
  virtual void done() noexcept = 0;

  bool immediate = false;  // completion runs no code of the program
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

 private:
  std::optional<error> failure_;
};

using waiter_list = boost::intrusive::list<waiter, boost::intrusive::constant_time_size<false>>;

// Awaiter of a coroutine that waits in a list, until attachment::resume_soon() resumes it. It resumes with the
// reason when its scope is stopped.
class waits_in : public waiter, tutti::detail::stop_node {
 public:
  // `ready`: does not wait.
  waits_in(attachment& on, waiter_list& list, bool ready = false) noexcept
      : on_(on), list_(list), ready_(ready) {}

  bool await_ready() const noexcept { return ready_; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) {
    handle_ = h;
    tutti::detail::stop_scope* const scope = tutti::detail::scope_of(h);
    if (scope != nullptr && scope->stopped()) {
      set_failure(error(scope->why(), "the operation was not started: " + scope->text()));
      return false;
    }
    list_.push_back(*this);
    join(scope);
    return true;
  }
  void await_resume() const { rethrow(); }
  void done() noexcept final;

 private:
  void on_stop(const tutti::detail::stop_scope& stopped) noexcept final;

  attachment& on_;
  waiter_list& list_;
  const bool ready_;
  std::coroutine_handle<> handle_;
};

}  // namespace tutti::gpu::detail
