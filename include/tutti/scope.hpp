// SPDX-License-Identifier: Apache-2.0
// scope: tasks that run at once and end together.
#pragma once

#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/error.hpp>
#include <tutti/task.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <utility>

namespace tutti {

// Tasks that run beside one coroutine. None outlives the scope.
//
//   tutti::scope work;
//   for (int r = 1; r < world.size(); ++r) work.spawn(serve(world, r));
//   co_await work.join();
//
// Belongs to one thread. Neither copied nor moved, because its tasks point to it.
// Errors: the first task that fails stops the others as when_any does. join() rethrows its exception.
// Cancellation: destroying the scope destroys the tasks that still run. Their buffers may then be reused.
class scope {
 public:
  scope() noexcept = default;
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;
  ~scope() {
    if (waiting_ != nullptr) waiting_->scope_ = nullptr;
    while (first_ != nullptr) first_->destroy();
  }

  // Starts the task now and runs it until it first waits. After cancel() or a failure, destroys it unstarted.
  // Cost: one recycled frame beside the task's own.
  void spawn(task<> work) {
    if (stop_.stopped()) return;
    const std::coroutine_handle<promise> h = run(std::move(work)).handle;
    h.promise().enter(*this);
    detail::resume_bounded(h);
  }
  // The number of tasks that have not ended.
  std::size_t running() const noexcept { return running_; }
  // Asks all tasks to end early.
  void cancel() noexcept { stop_.stop(errc::cancelled, "its scope was cancelled"); }

  // Waits until no task is running. Tasks may spawn others meanwhile. One coroutine waits at a time.
  // Errors: rethrows the first failure. errc::invalid_argument if another coroutine waits.
  // Cancellation: stopping the awaiting coroutine stops the tasks. Destroying it leaves them running.
  class joiner {
   public:
    explicit joiner(scope& s) noexcept : scope_(&s) {}
    joiner(const joiner& unused) noexcept : scope_(unused.scope_) {}
    ~joiner() {
      if (scope_ != nullptr && scope_->waiting_ == this) scope_->waiting_ = nullptr;
    }
    bool await_ready() noexcept {
      second_ = scope_->waiting_ != nullptr;
      return second_ || scope_->running_ == 0;
    }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> h) noexcept {
      handle_ = h;
      scope_->waiting_ = this;
      scope_->stop_.inside(detail::scope_of(h));
    }
    void await_resume() const {
      if (second_)
        throw error(errc::invalid_argument, "a scope was joined twice: another coroutine waits in join()");
      if (scope_->failure_) std::rethrow_exception(std::exchange(scope_->failure_, nullptr));
    }

   private:
    friend class scope;
    scope* scope_;  // null: it has been destroyed
    std::coroutine_handle<> handle_;
    bool second_ = false;
  };
  joiner join() noexcept { return joiner(*this); }

 private:
  struct promise : detail::owned_promise<promise>, detail::list_member<promise> {
    void enter(tutti::scope& s) noexcept {
      of = &s;
      scoped_promise::scope = &s.stop_;
      this->join(s.first_);
      ++s.running_;
    }
    void destroy() noexcept {
      this->leave();
      --of->running_;
      detail::destroy_frame(this->handle());
    }
    void ended() noexcept {
      tutti::scope& s = *of;
      if (failure && !s.failure_) {
        s.failure_ = failure;
        // Others may end inside stop(): this task still counts as running.
        s.stop_.stop(errc::cancelled, "another task of its scope failed");
      }
      destroy();
      if (s.running_ == 0 && s.waiting_ != nullptr)
        detail::resume_bounded(std::exchange(s.waiting_, nullptr)->handle_);
    }

    tutti::scope* of = nullptr;
  };

  static promise::coroutine run(task<> work) { co_await std::move(work); }

  detail::stop_scope stop_;
  promise* first_ = nullptr;
  std::size_t running_ = 0;
  joiner* waiting_ = nullptr;
  std::exception_ptr failure_;
};

}  // namespace tutti
