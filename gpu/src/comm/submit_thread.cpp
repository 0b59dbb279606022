// SPDX-License-Identifier: Apache-2.0
#include "comm/submit_thread.hpp"

#include <chrono>
#include <cstdio>
#include <exception>
#include <future>
#include <utility>

namespace tutti::gpu::impl {

std::shared_ptr<submit_thread> submit_thread::of(const std::shared_ptr<attachment>& on) {
  return lock_or_make(on->submits, on);
}

submit_thread::submit_thread(std::shared_ptr<attachment> on)
    : on_(std::move(on)), shared_(std::make_shared<shared>()) {
  shared_->waker = on_->shared_doorbell();
  shared_->driver = on_->shared_driver();
  shared_->spin = on_->spin_budget();
  std::packaged_task<void()> all([s = shared_] { work(s); });
  ended_ = all.get_future();
  thread_ = std::thread(std::move(all));
  on_->listen(*this);
}

submit_thread::~submit_thread() {
  on_->unlisten(*this);
  for (; pending_ > 0; --pending_) on_->end_wait();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ending = true;
    shared_->called.store(true, std::memory_order_release);
  }
  shared_->changed.notify_all();
  if (ended_.wait_for(std::chrono::seconds(hopeless_ ? 0 : 10)) == std::future_status::ready) {
    thread_.join();
  } else {
    if (!hopeless_)
      std::fprintf(stderr, "tutti: a call of a library on %s does not return; its thread is left behind\n",
                   on_->driver().name().c_str());
    thread_.detach();
  }
}

void submit_thread::submit(std::shared_ptr<job> j) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->waiting.push_back(std::move(j));
    shared_->called.store(true, std::memory_order_release);
  }
  ++pending_;
  on_->begin_wait();
  shared_->changed.notify_all();
}

// Waking a thread takes longer than most calls: one that comes soon after another finds the thread awake.
void submit_thread::spin(const shared& s) noexcept {
  const auto until = std::chrono::steady_clock::now() + s.spin;
  while (!s.called.load(std::memory_order_acquire) && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
}

void submit_thread::work(std::shared_ptr<shared> s) noexcept {
  s->driver->enter_thread();
  std::unique_lock lock(s->mutex);
  for (;;) {
    s->changed.wait(lock, [&] { return s->ending || !s->waiting.empty(); });
    s->called.store(s->ending || s->waiting.size() > 1, std::memory_order_relaxed);
    if (s->waiting.empty()) break;  // jobs submitted before the end still run
    std::shared_ptr<job> j = std::move(s->waiting.front());
    s->waiting.erase(s->waiting.begin());
    lock.unlock();
    j->run();
    lock.lock();
    s->done.push_back(std::move(j));
    s->done_count.store(s->done.size(), std::memory_order_release);
    lock.unlock();
    s->waker->notify();
    spin(*s);
    lock.lock();
  }
}

bool submit_thread::poll() noexcept {
  if (pending_ == 0 || shared_->done_count.load(std::memory_order_acquire) == 0) return false;
  {
    const std::lock_guard lock(shared_->mutex);
    finishing_.swap(shared_->done);
    shared_->done_count.store(0, std::memory_order_relaxed);
  }
  for (const auto& j : finishing_) {
    --pending_;
    on_->end_wait();
    j->finished();
  }
  finishing_.clear();
  return true;
}

// ---- functions ----

namespace {

struct function_job final : job {
  explicit function_job(std::function<void()> does) : f(std::move(does)) {}
  void run() noexcept override {
    try {
      f();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  // In the order of all jobs.
  void finished() noexcept override { over.store(true, std::memory_order_release); }
  const std::function<void()> f;
  std::exception_ptr failure;
  std::atomic<bool> over{false};
};

}  // namespace

void submit_thread::submit(std::function<void()> f) { submit(std::make_shared<function_job>(std::move(f))); }

task<> call_on(std::shared_ptr<submit_thread> on, std::function<void()> f) {
  const tutti::extend::scoped_promise* const self = co_await tutti::extend::own_promise{};
  self->throw_if_stopped("the operation was not started");
  const auto j = std::make_shared<function_job>(std::move(f));
  on->submit(j);
  try {
    co_await polled_flag(on->on(), j->over);
  } catch (const error&) {
    if (!j->over) throw;  // a result that is there counts, even if the scope was stopped meanwhile
  }
  if (j->failure) std::rethrow_exception(j->failure);
}

}  // namespace tutti::gpu::impl
