// SPDX-License-Identifier: Apache-2.0
// async_condition: coroutines of any loop wait for what a thread without a loop does.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/extend/version.hpp>
#include <tutti/task.hpp>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

namespace tutti::bootstrap {
class store_contents;
}

namespace tutti::extend::inline v1 {

using loop_executor = boost::asio::io_context::executor_type;
// The executor of the loop that this thread runs.
// Errors: throws errc::wrong_thread on a thread without one, for `what` and with `cure`.
loop_executor executor_here(std::string_view what, std::string_view cure);

class async_condition {
 public:
  async_condition();
  ~async_condition();
  // Says that something has changed. Any thread may call it.
  void notify_all();
  // Waits until done() returns true, or until the deadline, and returns its value. Checks it at the start and after each
  // notify_all(), on the thread of `executor`, which is the caller's. `what` is for texts. The condition outlives the
  // task.
  task<bool> wait_until(std::function<bool()> done, loop_executor executor,
                        std::chrono::steady_clock::time_point deadline, std::string_view what);

 private:
  const std::unique_ptr<bootstrap::store_contents> contents_;
};

}  // namespace tutti::extend::inline v1
