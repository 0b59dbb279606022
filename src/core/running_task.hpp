// SPDX-License-Identifier: Apache-2.0
// A task started from ordinary code, with a callback at its end. May be destroyed at any time. background_tasks:
// those of an owner, whose destructor ends them (accepting, connecting).
#pragma once

#include "base/log.hpp"

#include <algorithm>
#include <coroutine>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <tutti/error.hpp>
#include <tutti/task.hpp>
#include <utility>
#include <vector>

namespace tutti::core {

// What an exception says.
struct thrown {
  errc code;
  std::string text;
};
// `otherwise` is the code of an exception that has none.
inline thrown what_of(const std::exception_ptr& failure, errc otherwise = errc::success) {
  try {
    std::rethrow_exception(failure);
  } catch (const error& e) {
    return {static_cast<errc>(e.code().value()), e.what()};
  } catch (const std::bad_alloc&) {
    return {errc::resources, "out of memory"};
  } catch (const std::exception& e) {
    return {otherwise, e.what()};
  } catch (...) {
    return {otherwise, "an exception that is no std::exception"};
  }
}

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

class background_tasks {
 public:
  // Starts `body`. An exception that leaves it is logged; handle errors inside.
  void start(task<> body) {
    // Frees the frames of ended tasks: never from inside themselves.
    std::erase_if(tasks_, [](const std::unique_ptr<running_task>& t) { return !t->running(); });
    tasks_.push_back(std::make_unique<running_task>());
    tasks_.back()->start(std::move(body), &ended, nullptr);
  }
  // Destroys all tasks where they wait. Must not be called from inside one of them.
  void clear() noexcept { tasks_.clear(); }

 private:
  static void ended(void*, std::exception_ptr failure) noexcept {
    if (!failure) return;
    try {
      std::rethrow_exception(failure);
    } catch (const std::bad_alloc&) {
      std::terminate();
    } catch (...) {
      base::log_error("a background task failed: " + what_of(failure).text);
    }
  }

  std::vector<std::unique_ptr<running_task>> tasks_;
};

}  // namespace tutti::core
