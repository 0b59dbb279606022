// SPDX-License-Identifier: Apache-2.0
// wakeup: lets one coroutine wait until it is notified or a deadline passes. For start-up and other rare
// waits: costs an Asio timer.
#pragma once

#include "core/platform.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <string>
#include <tutti/detail/deadline.hpp>
#include <tutti/task.hpp>
#include <utility>

namespace tutti::core {

inline time_point deadline_after(std::chrono::milliseconds timeout) noexcept {
  return detail::after(clock::now(), timeout);
}
// The time left until then, rounded up; not negative.
inline std::chrono::milliseconds time_left(time_point deadline, time_point now = clock::now()) noexcept {
  if (deadline == time_point::max()) return std::chrono::milliseconds::max();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
  return left > std::chrono::milliseconds(0) ? left : std::chrono::milliseconds(0);
}

// Used on one thread, the executor's. A notification without a waiter is kept for the next wait.
class wakeup {
 public:
  explicit wakeup(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  // The executor resumes the waiting coroutine, not this function.
  void notify() {
    notified_ = true;
    timer_.cancel();
  }
  // Returns true if notified, false if the deadline passed. One waiter at a time.
  // Errors: why the waiting coroutine's scope was stopped; the text begins with `what`.
  task<bool> wait(time_point deadline, std::string what = "waiting");

 private:
  boost::asio::steady_timer timer_;
  bool notified_ = false;
};

}  // namespace tutti::core
