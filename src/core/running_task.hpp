// SPDX-License-Identifier: Apache-2.0
// A task started from ordinary code, with a callback at its end. May be destroyed at any time.
#pragma once

#include <coroutine>
#include <exception>
#include <tutti/task.hpp>
#include <utility>

namespace tutti::core {

class running_task {
 public:
  // `failure` is null if the task returned normally. Called from the task's last step: the callee may start
  // other work, but must not destroy this object before it has returned.
  using function = void (*)(void* owner, std::exception_ptr failure) noexcept;

  running_task() noexcept = default;
  running_task(const running_task&) = delete;
  running_task& operator=(const running_task&) = delete;
  ~running_task() { stop(); }

  // Runs `body` until it first waits. `done` may be called before this returns.
  void start(task<> body, function done, void* owner) {
    stop();
    done_ = done;
    owner_ = owner;
    frame_ = drive(this, std::move(body)).handle;
    detail::resume_bounded(frame_);
  }
  bool running() const noexcept { return frame_ && !frame_.done(); }
  // Destroys the task where it waits; `done` is not called.
  void stop() noexcept {
    if (frame_) detail::destroy_frame(std::exchange(frame_, {}));
  }

 private:
  struct driver {
    struct promise_type : detail::task_promise_base {
      driver get_return_object() noexcept {
        return {std::coroutine_handle<promise_type>::from_promise(*this)};
      }
      std::suspend_always final_suspend() const noexcept { return {}; }
      void return_void() const noexcept {}
    };
    std::coroutine_handle<promise_type> handle;
  };

  static driver drive(running_task* self, task<> body) {
    std::exception_ptr failure;
    try {
      co_await std::move(body);
    } catch (...) {
      failure = std::current_exception();
    }
    self->done_(self->owner_, failure);
  }

  std::coroutine_handle<driver::promise_type> frame_;
  function done_ = nullptr;
  void* owner_ = nullptr;
};

}  // namespace tutti::core
