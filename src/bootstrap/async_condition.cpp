// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_contents.hpp"
#include "core/loop.hpp"

#include <tutti/extend/async_condition.hpp>
#include <utility>

namespace tutti::extend::inline v1 {

loop_executor executor_here(std::string_view what, std::string_view cure) {
  return core::loop::here(what, cure).executor();
}

// Of a store without contents: its watches wait for the only key.
async_condition::async_condition() : contents_(std::make_unique<bootstrap::store_contents>()) {}
async_condition::~async_condition() = default;
void async_condition::notify_all() { contents_->notify({}); }

task<bool> async_condition::wait_until(std::function<bool()> done, loop_executor executor,
                                       std::chrono::steady_clock::time_point deadline,
                                       std::string_view what) {
  const bootstrap::store_contents::watch watch(*contents_, {}, executor);
  bool in_time = true;
  while (in_time && !done()) in_time = co_await watch.changed().wait(deadline, std::string(what));
  co_return done();
}

}  // namespace tutti::extend::inline v1
