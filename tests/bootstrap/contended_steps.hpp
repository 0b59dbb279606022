// SPDX-License-Identifier: Apache-2.0
// Destroys tasks that use a store's file at each of their steps.
#pragma once

#include "bootstrap/store_file.hpp"
#include "core/running_task.hpp"
#include "support/run_task.hpp"

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <string>
#include <utility>

namespace tutti::test {

// Runs `body` for this number of handlers, or until none is left, then destroys it. Between handlers another
// user alternately takes and frees the file's lock, so that the body also waits for it. Returns false if the
// body ended before.
inline bool destroy_after(boost::asio::io_context& context, const std::string& path, int steps, task<> body) {
  bootstrap::store_file other(path);
  bool held = other.try_lock();
  core::running_task running;
  running.start(std::move(body));
  for (int step = 0; step < steps && running.running(); ++step) {
    if (held) other.unlock();
    held = !held && other.try_lock();
    context.restart();
    if (context.run_one_for(std::chrono::milliseconds(20)) == 0 && !held) break;
  }
  const bool was_running = running.running();
  running.stop();
  return was_running;
}

inline bool is_lock_free(const std::string& path) {
  bootstrap::store_file file(path);
  return file.try_lock();
}

}  // namespace tutti::test
