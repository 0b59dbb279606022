// SPDX-License-Identifier: Apache-2.0
// running_task: a task started from ordinary code, with a callback at its end. May be destroyed at any time.
#pragma once

#include <tutti/extend/version.hpp>
#include <tutti/task.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace tutti::extend::inline v1 {

class running_task {
 public:
  // `failure` is null if the task returned normally. May start other work, or destroy this object.
  using function = void (*)(void* owner, std::exception_ptr failure) noexcept;

  running_task() noexcept = default;
  running_task(const running_task&) = delete;
  running_task& operator=(const running_task&) = delete;
  ~running_task() { stop(); }

  // Runs `body` until it first waits. `done` may be called before this returns; without it, a failure is dropped.
  void start(task<> body, function done = [](void*, std::exception_ptr) noexcept {}, void* owner = nullptr) {
    stop();
    done_ = done;
    owner_ = owner;
    frame_ = run(std::move(body)).handle;
    frame_.promise().owner = this;
    detail::resume_bounded(frame_);
  }
  bool running() const noexcept { return frame_ && !frame_.done(); }
  // Destroys the task where it waits; `done` is not called.
  void stop() noexcept {
    if (frame_) detail::destroy_frame(std::exchange(frame_, {}));
  }

 private:
  struct promise : detail::owned_promise<promise> {
    void ended() noexcept { owner->done_(owner->owner_, failure); }
    running_task* owner = nullptr;
  };
  static promise::coroutine run(task<> body) { co_await std::move(body); }

  std::coroutine_handle<promise> frame_;
  function done_ = nullptr;
  void* owner_ = nullptr;
};

}  // namespace tutti::extend::inline v1
