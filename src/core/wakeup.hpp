// SPDX-License-Identifier: Apache-2.0
// wakeup: lets one coroutine wait until it is notified or a deadline passes, in start-up and other rare cases: costs
// an Asio timer. outside_scope: lets a coroutine whose scope was stopped await one thing more.
#pragma once

#include "core/platform.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <string>
#include <tutti/detail/deadline.hpp>
#include <tutti/detail/stop_scope.hpp>
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
  task<bool> wait(time_point deadline, std::string what = "waiting") {
    if (!notified_) {
      const detail::scoped_promise* const self = co_await detail::own_promise{};
      self->throw_if_stopped(what);
      timer_.expires_at(deadline);
      co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::deferred));
      if (!notified_) self->throw_if_stopped(what);
    }
    co_return std::exchange(notified_, false);
  }

 private:
  boost::asio::steady_timer timer_;
  bool notified_ = false;
};

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
