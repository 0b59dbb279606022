// SPDX-License-Identifier: Apache-2.0
// A thread beside the loop that makes the blocking calls of a library, in order.
#pragma once

#include "device/attachment.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::gpu::impl {

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
  // Waits up to 10 s for the thread to end, then leaves it in its call.
  ~submit_thread();

  void submit(std::shared_ptr<job> j);
  // Runs f() on the submit thread, and ignores what it throws. f is destroyed on the loop thread.
  void submit(std::function<void()> f);
  // The thread may never return from its call: the destructor does not wait for it.
  void leave_behind() noexcept { hopeless_ = true; }
  // Whether nothing is left of any job, also of one that finishes now.
  bool is_idle() const noexcept { return pending_ == 0 && finishing_.empty(); }
  attachment& on() const noexcept { return *on_; }

 private:
  struct shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::shared_ptr<job>> waiting;
    std::vector<std::shared_ptr<job>> done;
    std::atomic<bool> called{false};         // something is in `waiting`, or `ending` is set
    std::atomic<std::size_t> done_count{0};  // jobs in `done`
    bool ending = false;
    std::chrono::nanoseconds spin{};  // how long to look for the next job before sleeping
    std::shared_ptr<const doorbell_handle> waker;
    std::shared_ptr<impl::driver> driver;
  };
  static void work(std::shared_ptr<shared> s) noexcept;
  static void spin(const shared& s) noexcept;
  bool poll() noexcept override;

  std::shared_ptr<attachment> on_;
  std::shared_ptr<shared> shared_;
  std::thread thread_;
  std::future<void> ended_;
  std::vector<std::shared_ptr<job>> finishing_;  // empty outside poll()
  std::size_t pending_ = 0;                      // submitted and not finished
  bool hopeless_ = false;
};

// Runs f() on the submit thread and rethrows what it throws. An await that ends early does not stop f, so f
// must own what it uses.
task<> call_on(std::shared_ptr<submit_thread> on, std::function<void()> f);

}  // namespace tutti::gpu::impl
