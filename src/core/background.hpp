// SPDX-License-Identifier: Apache-2.0
// Tasks that run in the background (accepting, connecting). They belong to an owner, whose destructor ends
// them.
#pragma once

#include "base/log.hpp"
#include "core/running_task.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace tutti::core {

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
    } catch (const std::exception& e) {
      base::log_error(std::string("a background task failed: ") + e.what());
    } catch (...) {
      base::log_error("a background task failed");
    }
  }

  std::vector<std::unique_ptr<running_task>> tasks_;
};

}  // namespace tutti::core
