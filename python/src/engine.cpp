// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include "work.hpp"

#include <atomic>
#include <utility>

namespace tutti::python {
namespace {

std::atomic<engine*> the_engine{nullptr};

}  // namespace

engine& engine::get() {
  static engine* const only = [] {
    auto* const e = new engine;
    the_engine = e;
    return e;
  }();
  return *only;
}

engine* engine::made() noexcept { return the_engine; }

engine::engine() : thread_([this] { finish_urgent(); }) {}

void engine::add_ended(work_ref w, bool urgent) noexcept {
  is_urgent_ = is_urgent_ || urgent;
  ended_.push_back(std::move(w));
  if (!urgent && ended_.size() % 256 != 0) return;
  {
    const std::scoped_lock hold(mutex_);
    is_wanted_ = true;
  }
  wanted_.notify_one();
}

void engine::finish_ended() {
  std::vector<work_ref> now;
  {
    const core::driver::entry here(driver_);
    now.swap(ended_);
  }
  for (const work_ref& w : now) w->finish();
}

void engine::finish_urgent() {
  for (;;) {
    {
      std::unique_lock hold(mutex_);
      wanted_.wait(hold, [this] { return is_wanted_ || ending_; });
      if (ending_) return;
      is_wanted_ = false;
    }
    finish_ended();
  }
}

void engine::shut_down(core::time_point deadline) {
  comm::runtime_state& state = runtime_.state();
  driver_.run_until([&state] { return state.worlds().empty(); }, deadline);
  {
    const std::scoped_lock hold(mutex_);
    ending_ = true;
    wanted_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  driver_.stop();
  finish_ended();
}

}  // namespace tutti::python
