// SPDX-License-Identifier: Apache-2.0
// The queues of an emulated device: the work of each runs in order, on threads that take turns among them.
// The stand-ins for vendors' libraries run on it, too.
//
// Only the head of a queue can run, and it may wait for an event or a word. The scheduler takes the oldest
// head that can run. With an adversary it takes any, by a seeded random number, and adds pauses.
#pragma once

#include "emulated/arena.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/emulated.hpp>
#include <utility>
#include <vector>

namespace tutti::emulated {

// A function stored in place. The nodes of lists are used again, too: device_queues allocate nothing in steady state,
// and tests see every allocation of the code above it.
class placed_function {
 public:
  placed_function() noexcept = default;
  placed_function(const placed_function&) = delete;
  placed_function& operator=(const placed_function&) = delete;
  ~placed_function() { clear(); }
  template <class F>
  void set(F f) {
    static_assert(sizeof(F) <= sizeof room_ && alignof(F) <= alignof(std::max_align_t));
    new (room_) F(std::move(f));
    call_ = [](void* at) { (*static_cast<F*>(at))(); };
    end_ = [](void* at) noexcept { static_cast<F*>(at)->~F(); };
  }
  explicit operator bool() const noexcept { return end_ != nullptr; }
  void operator()() { call_(room_); }
  void clear() noexcept {
    if (end_ != nullptr) std::exchange(end_, nullptr)(room_);
  }

 private:
  void (*call_)(void*) = nullptr;
  void (*end_)(void*) noexcept = nullptr;
  alignas(std::max_align_t) std::byte room_[512];
};

class device_queues {
 public:
  struct fault : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  using word = std::atomic<std::uint64_t>;
  struct queue;
  // A point in a queue, of this device or another. Waits and queries refer to the last record before them, as in CUDA.
  // An event that was never recorded has passed.
  struct event {
    const queue* in = nullptr;  // guarded by the queues' mutex
    std::uint64_t place = 0;    // position of the record
  };

  explicit device_queues(options how);
  ~device_queues();

  arena& memory() noexcept { return memory_; }
  const arena& memory() const noexcept { return memory_; }
  const options& how() const noexcept { return how_; }

  queue* make_queue();
  void destroy_queue(queue* q) noexcept;  // work in it still runs
  // Counts as a piece of work. May throw fault.
  template <class F>
  void run(queue* q, F work) {
    enqueue(q, [&](item& i) {
      i.run.set(std::move(work));
      i.is_work = true;
    });
  }
  void record(queue* q, event& e);
  void wait(queue* q, const event& e);
  bool passed(const event& e) const;
  void write(queue* q, word* w, std::uint64_t value) {
    call(q, [w, value] { w->store(value, std::memory_order_release); });
  }
  void wait(queue* q, const word* w, std::uint64_t at_least);
  // Not counted, and not called after the emulated device has failed.
  template <class F>
  void call(queue* q, F f) {
    enqueue(q, [&](item& i) { i.run.set(std::move(f)); });
  }
  void changed() noexcept;  // call it after writing a word

  template <class Is>
  bool all_queues(Is is) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(queues_, is);
  }

  // After a fault no more work starts. The emulated device has failed once the work that had started is done:
  // from then on no work accesses memory.
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  std::string failure() const;
  void fail_after(std::uint64_t n, std::string why);
  void pause(bool on) noexcept;

  // Returns the device's view of the memory, or throws fault.
  std::byte* reach(const void* memory, std::size_t bytes) const;

 private:
  struct item {
    placed_function run;  // empty: it only waits, or is recorded
    bool is_work = false;
    // It can run when these have passed.
    event after;
    const word* source = nullptr;
    std::uint64_t at_least = 0;
    std::uint64_t order = 0;
  };
  // Appends an item that `fill` completes.
  template <class Fill>
  void enqueue(queue* q, const Fill& fill);
  void retire(queue* q) noexcept;
  void work_loop();
  bool must_poll(const queue& q) const noexcept;
  queue* choose() noexcept;
  static bool has_passed(const event& e) noexcept;
  bool runnable(const queue& q) const noexcept;

  const options how_;
  arena memory_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;         // for workers
  std::list<queue> queues_, spare_queues_;  // a queue stays where it is: events refer to it
  std::list<item> spare_items_;
  std::vector<std::thread> workers_;
  std::uint64_t next_order_ = 1;
  std::mt19937_64 random_;      // of the adversary
  std::uint64_t executed_ = 0;  // pieces of work
  std::uint64_t fail_at_ = 0;
  std::string fail_why_ = "injected fault";
  int running_ = 0;       // pieces of work that have started
  bool failing_ = false;  // a fault has occurred
  std::atomic<bool> failed_{false};
  std::string failure_;
  bool paused_ = false;
  bool ending_ = false;
};

struct device_queues::queue {
  std::list<item> items;
  explicit queue(const device_queues& d) : of(&d) {}
  const device_queues* const of;
  // Numbers of items; a queue that is used again goes on counting. Other devices read `done`.
  std::uint64_t enqueued = 0;
  std::atomic<std::uint64_t> done{0};
  bool busy = false;
  bool doomed = false;
  std::atomic<bool> capturing{false};
};

template <class Fill>
void device_queues::enqueue(queue* q, const Fill& fill) {
  {
    const std::lock_guard lock(mutex_);
    if (spare_items_.empty()) spare_items_.emplace_back();
    item& i = spare_items_.front();
    i.is_work = false;
    i.after = {};
    i.source = nullptr;
    i.order = next_order_++;
    ++q->enqueued;
    fill(i);
    q->items.splice(q->items.end(), spare_items_, spare_items_.begin());
  }
  changed_.notify_one();
}

}  // namespace tutti::emulated
