// SPDX-License-Identifier: Apache-2.0
// A thread beside the loop that makes the blocking calls of a library, in order.
#pragma once

#include "device/attachment.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tutti/error.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::gpu::detail {

// One call, or a few that belong together.
class job {
 public:
  virtual ~job() = default;
  // Runs on the submit thread.
  virtual void run() noexcept = 0;
  // Runs on the loop afterwards, unless the submit thread has been destroyed.
  virtual void finished() noexcept {}
};

class submit_thread final : attachment::listener {
 public:
  // Returns the submit thread of a device on its loop.
  static std::shared_ptr<submit_thread> of(const std::shared_ptr<attachment>& on);
  explicit submit_thread(std::shared_ptr<attachment> on);
  submit_thread(const submit_thread&) = delete;
  submit_thread& operator=(const submit_thread&) = delete;
  // Waits up to 10 s for the thread to end, then leaves it in its call.
  ~submit_thread();

  void submit(std::shared_ptr<job> j);
  // The thread may never return from its call: the destructor does not wait for it.
  void leave_behind() noexcept { hopeless_ = true; }
  attachment& on() const noexcept { return *on_; }

 private:
  struct shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::shared_ptr<job>> waiting;
    std::vector<std::shared_ptr<job>> done;
    std::atomic<std::size_t> done_count{0};  // jobs in `done`
    bool ending = false;
    bool ended = false;
    std::shared_ptr<const doorbell_handle> waker;
    std::shared_ptr<detail::driver> driver;
  };
  static void work(std::shared_ptr<shared> s);
  bool poll() noexcept override;

  std::shared_ptr<attachment> on_;
  std::shared_ptr<shared> shared_;
  std::thread thread_;
  std::vector<std::shared_ptr<job>> finishing_;  // empty outside poll()
  std::size_t pending_ = 0;                      // submitted and not finished
  bool hopeless_ = false;
};

// co_await submit_operation(thread, f) runs f() on the submit thread and rethrows what it throws. An await
// that ends early does not stop f, so f must own what it uses.
class submit_operation {
 public:
  submit_operation(std::shared_ptr<submit_thread> on, std::function<void()> f)
      : submit_thread_(std::move(on)), f_(std::move(f)) {}

  class awaiter : suspended {
   public:
    awaiter(std::shared_ptr<submit_thread> on, std::function<void()> f);
    ~awaiter();
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) {
      if (!begin(h, "the call")) return false;
      submit();
      joined();
      return true;
    }
    void await_resume() const;

   private:
    struct piece;
    void submit();
    static void stop(suspended& self, errc why, const std::string& text) noexcept;
    std::shared_ptr<submit_thread> submit_thread_;
    std::shared_ptr<piece> piece_;
  };
  awaiter operator co_await() && { return awaiter(std::move(submit_thread_), std::move(f_)); }

 private:
  std::shared_ptr<submit_thread> submit_thread_;
  std::function<void()> f_;
};

// The same for at most `limit`. Returns false if f has not returned by then.
task<bool> in_time(std::shared_ptr<submit_thread> on, std::chrono::milliseconds limit,
                   std::function<void()> f);

}  // namespace tutti::gpu::detail
