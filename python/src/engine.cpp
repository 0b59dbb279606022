// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include "work.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

namespace tutti::python {
namespace {

std::atomic<engine*> the_engine{nullptr};

}  // namespace

engine& engine::get() {
  static std::mutex making;
  const std::scoped_lock hold(making);
  if (made() == nullptr) the_engine = new engine;
  return *the_engine;
}

engine* engine::made() noexcept {
  engine* const last = the_engine;
  return last == nullptr || last->is_parents() ? nullptr : last;
}

engine::engine() {
  threads_.emplace_back([this] { run_callbacks(); });
}

void engine::add_ended(work_ref w, bool has_callbacks) noexcept {
  if (!has_callbacks) {
    ended_.push_back(std::move(w));
    if (ended_.size() % 256 != 0) return;
  }
  {
    const std::scoped_lock hold(mutex_);
    if (!has_callbacks) {
      many_ended_ = true;
    } else if (!ending_) {
      with_callbacks_.push_back(std::move(w));
    } else {
      ended_.push_back(std::move(w));
    }
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

// Python handles signals in the main thread only.
core::time_point engine::next_signals() noexcept {
  thread_local const bool is_main = ::gettid() == ::getpid();
  return is_main ? core::clock::now() + std::chrono::milliseconds(100) : core::time_point::max();
}

void engine::add_receive(work& w) noexcept { receives_.push_back(w); }

void engine::cancel_receives() {
  std::vector<work_ref> waiting;
  {
    const core::driver::entry here(driver_);
    for (work* w = receives_.front(); w != nullptr; w = receives_.after(*w))
      waiting.push_back(work_ref::reclaim_copy(w));
  }
  for (const work_ref& w : waiting) w->cancel();
}

void engine::start_thread() noexcept {
  try {
    threads_.emplace_back([this] { run_callbacks(); });
  } catch (const std::exception&) {  // the system has no more threads: callbacks run one after the other
  }
}

// A callback may wait for other works. So while a work's callbacks run, another thread is there for the next.
void engine::run_callbacks() {
  std::unique_lock hold(mutex_);
  for (;;) {
    ++idle_;
    wanted_.wait(hold, [this] { return many_ended_ || !with_callbacks_.empty() || ending_; });
    --idle_;
    work_ref next;
    if (!with_callbacks_.empty()) {
      next = std::move(with_callbacks_.front());
      with_callbacks_.pop_front();
      if (idle_ == 0 && !ending_) start_thread();
    } else if (ending_) {
      return;
    } else {
      many_ended_ = false;
    }
    hold.unlock();
    if (next) {
      next->finish();
      next.reset();
    } else {
      finish_ended();
    }
    hold.lock();
  }
}

void engine::shut_down(core::time_point deadline) {
  comm::runtime_state& state = runtime_.state();
  driver_.run_until([&state] { return state.worlds().empty(); }, deadline);
  std::vector<std::thread> ending;
  {
    const std::scoped_lock hold(mutex_);
    ending_ = true;
    ending.swap(threads_);
  }
  wanted_.notify_all();
  for (std::thread& t : ending) t.join();
  driver_.stop();
  finish_ended();
}

}  // namespace tutti::python
