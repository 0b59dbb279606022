// SPDX-License-Identifier: Apache-2.0
// outside_scope: lets a coroutine whose scope was stopped await one thing more, such as telling others.
#pragma once

#include <tutti/detail/stop_scope.hpp>
#include <tutti/task.hpp>
#include <utility>

namespace tutti::core {

// Awaits `body`, which the stop of the awaiting coroutine's scope does not reach. Limit its time.
// Errors: none. Why the scope was stopped is what the caller reports.
inline task<> outside_scope(task<> body) {
  detail::scoped_promise* const self = co_await detail::own_promise{};
  self->scope = nullptr;
  try {
    co_await std::move(body);
  } catch (...) {
  }
}

}  // namespace tutti::core
