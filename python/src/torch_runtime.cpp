// SPDX-License-Identifier: Apache-2.0
#include "torch_runtime.hpp"

#include "work.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <iterator>
#include <tutti/explain.hpp>
#include <utility>

namespace tutti::python {
namespace {

std::atomic<torch_runtime*> the_runtime{nullptr};

}  // namespace

torch_runtime& torch_runtime::get() {
  static std::mutex making;
  const std::scoped_lock hold(making);
  if (made() == nullptr) the_runtime = new torch_runtime;
  return *the_runtime;
}

torch_runtime* torch_runtime::made() noexcept {
  torch_runtime* const last = the_runtime;
  return last == nullptr || last->is_parents() ? nullptr : last;
}

torch_runtime::torch_runtime() {
  explain_at_signal();
  threads_.emplace_back([this] { run_callbacks(); });
}

void torch_runtime::add_ended(work_ref w, bool has_callbacks) noexcept {
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

void torch_runtime::finish_ended() {
  std::vector<work_ref> now;
  {
    const extend::loop_driver::entry here(driver_);
    now.swap(ended_);
  }
  for (const work_ref& w : now) w->finish();
  if (!any_unused_.exchange(false)) return;
  std::vector<std::vector<at::Tensor>> unused;
  const std::scoped_lock hold(mutex_);
  unused.swap(unused_);
}

std::shared_ptr<const void> torch_runtime::kept_for_device(std::vector<at::Tensor> tensors) {
  return {new std::vector<at::Tensor>(std::move(tensors)), [this](std::vector<at::Tensor>* all) {
            {
              const std::scoped_lock hold(mutex_);
              unused_.push_back(std::move(*all));
            }
            any_unused_ = true;
            delete all;
          }};
}

// Python handles signals in the main thread only.
time_point torch_runtime::next_signals() noexcept {
  thread_local const bool is_main = ::gettid() == ::getpid();
  return is_main ? clock::now() + std::chrono::milliseconds(100) : time_point::max();
}

void torch_runtime::add_receive(work& w) noexcept { receives_.push_back(w); }

void torch_runtime::stay_if_ending(bool left) const noexcept {
  if (::gettid() == ::getpid()) return;
  const time_point until = clock::now() + std::chrono::seconds(left ? 1 : 0);
  while (!python_ends_ && clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  while (python_ends_) ::pause();
}

void torch_runtime::cancel_receives() {
  python_ends_ = true;
  std::vector<work_ref> waiting;
  {
    const extend::loop_driver::entry here(driver_);
    for (work* w = receives_.front(); w != nullptr; w = receives_.after(*w))
      waiting.push_back(work_ref::reclaim_copy(w));
  }
  for (const work_ref& w : waiting) w->cancel();
}

void torch_runtime::look_again(std::shared_ptr<group_hooks> group) {
  {
    const std::scoped_lock hold(mutex_);
    if (ending_ || std::ranges::find(delayed_, group) != delayed_.end()) return;
    delayed_.push_back(std::move(group));
  }
  wanted_.notify_one();
}

void torch_runtime::start_thread() noexcept {
  for (std::thread& t : ended_threads_) t.join();  // it has returned, or is about to
  ended_threads_.clear();
  try {
    threads_.emplace_back([this] { run_callbacks(); });
  } catch (const std::exception&) {  // the system has no more threads: callbacks run one after the other
  }
}

// A callback may wait for other works. So while a work's callbacks run, another thread is there for the next. Threads
// that are not needed any more end.
void torch_runtime::run_callbacks() {
  constexpr int most_idle = 2;
  constexpr auto look_at_delayed = std::chrono::milliseconds(50);
  std::unique_lock hold(mutex_);
  for (;;) {
    if (idle_ == most_idle && with_callbacks_.empty() && !ending_) {
      const auto self = std::ranges::find(threads_, std::this_thread::get_id(), &std::thread::get_id);
      ended_threads_.push_back(std::move(*self));
      threads_.erase(self);
      return;
    }
    ++idle_;
    now_idle_.notify_all();
    const auto has_work = [this] { return many_ended_ || !with_callbacks_.empty() || ending_; };
    if (delayed_.empty()) {
      wanted_.wait(hold, [&] { return has_work() || !delayed_.empty(); });
    }
    bool looks = false;
    if (!has_work()) looks = !wanted_.wait_for(hold, look_at_delayed, has_work);
    --idle_;
    work_ref next;
    std::vector<std::shared_ptr<group_hooks>> groups;
    if (looks) {
      groups.swap(delayed_);
      if (idle_ == 0 && !ending_) start_thread();
    } else if (!with_callbacks_.empty()) {
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
    } else if (looks) {
      for (const auto& group : groups) group->complete_futures(*this);
      groups.clear();
    } else {
      finish_ended();
    }
    hold.lock();
  }
}

void torch_runtime::shut_down(time_point deadline) {
  driver_.run_until([this] { return driver_.has_left_all(); }, deadline);
  std::vector<std::thread> ending;
  {
    std::unique_lock hold(mutex_);
    const auto are_over = [this] {
      return with_callbacks_.empty() && delayed_.empty() && idle_ == std::ssize(threads_);
    };
    while (!now_idle_.wait_for(hold, std::chrono::milliseconds(100), are_over)) {
      hold.unlock();
      handle_signals();
      hold.lock();
    }
    ending_ = true;
    ending.swap(threads_);
    for (std::thread& t : ended_threads_) ending.push_back(std::move(t));
    ended_threads_.clear();
  }
  wanted_.notify_all();
  for (std::thread& t : ending) t.join();
  driver_.stop();
  finish_ended();
}

}  // namespace tutti::python
