// SPDX-License-Identifier: Apache-2.0
// A task started from ordinary code, with a callback at its end. May be destroyed at any time. background_tasks:
// those of an owner, whose destructor ends them (accepting, connecting).
#pragma once

#include "base/log.hpp"

#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <tutti/error.hpp>
#include <tutti/scope.hpp>
#include <tutti/task.hpp>
#include <utility>

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

class background_tasks {
 public:
  // Starts `body`. An exception that leaves it is logged; handle errors inside.
  void start(task<> body) { tasks_->spawn(logged(std::move(body))); }
  // The number of tasks that have not ended.
  std::size_t running() const noexcept { return tasks_->running(); }
  // Destroys all tasks where they wait. Must not be called from inside one of them.
  void clear() noexcept { tasks_.emplace(); }

 private:
  static task<> logged(task<> body) {
    try {
      co_await std::move(body);
    } catch (const std::bad_alloc&) {
      std::terminate();
    } catch (...) {
      log(std::current_exception());
    }
  }
  static void log(const std::exception_ptr& failure) noexcept {
    base::log_error("a background task failed: " + what_of(failure).text);
  }

  std::optional<scope> tasks_{std::in_place};
};

}  // namespace tutti::core
