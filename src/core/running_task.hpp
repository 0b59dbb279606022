// SPDX-License-Identifier: Apache-2.0
// background_tasks: tasks of an owner, whose destructor ends them (accepting, connecting).
#pragma once

#include "base/log.hpp"

#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <tutti/extend/failure.hpp>
#include <tutti/extend/running_task.hpp>
#include <tutti/scope.hpp>
#include <tutti/task.hpp>
#include <utility>

namespace tutti::core {

using extend::running_task;
using extend::what_of;
using thrown = extend::failure;

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
