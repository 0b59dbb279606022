// SPDX-License-Identifier: Apache-2.0
// loop_driver: a loop that belongs to no single thread, for programs whose threads call in and block (PyTorch's).
//
// A waiting caller polls the loop itself, so nothing is handed from thread to thread; a thread of the driver does
// what no caller waits for. One thread at a time is the loop, under a mutex. It yields to others between two
// rounds, and releases the loop while it sleeps.
#pragma once

#include "core/loop.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace tutti::core {

class loop_driver {
 public:
  // Starts the thread. `l` outlives this and has not been used yet. Throws errc::resources.
  explicit loop_driver(core::loop& l);
  loop_driver(const loop_driver&) = delete;
  loop_driver& operator=(const loop_driver&) = delete;
  // Requires that no thread is in a call.
  ~loop_driver();
  // Ends the thread: from now on work progresses only during calls.
  void stop();

  core::loop& loop() noexcept { return loop_; }
  // Whether this process was forked after this was made; calls then throw.
  bool is_parents() const noexcept { return loop_.is_parents(); }

  // Makes this thread the loop as long as it lives: it may start, cancel and destroy what belongs to the loop.
  // Waits until the loop's thread ends its round. Throws errc::wrong_thread in a forked child.
  class entry {
   public:
    explicit entry(loop_driver& d) : driver_(d) { d.enter(); }
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;
    ~entry() { driver_.leave(); }

   private:
    loop_driver& driver_;
  };

  // The two halves of it.
  void enter();
  void leave();

  // Drives the loop, or waits for the thread that does, until done() returns true; the loop calls it. Returns
  // false if the deadline has passed. Throws errc::wrong_thread in a forked child.
  template <class F>
  bool run_until(const F& done, time_point deadline) {
    return run_until([](const void* f) { return (*static_cast<const F*>(f))(); }, &done, deadline);
  }
  using predicate = bool (*)(const void*);
  bool run_until(predicate done, const void* what, time_point deadline);

  // Called on the loop: changes the number of operations that progress although no thread may wait for them: by
  // the driver's thread after this call with `now`, otherwise after a fifth of a millisecond without calls.
  void attend(int change, bool now = false) noexcept {
    attended_ += change;
    hurry_ = hurry_ || now;
  }
  // Called on the loop: what a thread waits for may have happened.
  void notify() noexcept { notified_ = true; }

 private:
  struct resident {
    base::unique_fd kick = make_eventfd();  // ends its sleep
    bool sleeps = false;
  };

  void lock();
  void unlock() noexcept;
  void round(unsigned number) noexcept;
  void give_way();
  void sleep(resident& as, bool watch_loop, time_point until);
  bool drive(resident& as, predicate done, const void* what, time_point deadline);
  void leave_to_next() noexcept;
  void progress();

  core::loop& loop_;
  std::mutex mutex_;  // its holder is the loop
  std::atomic<int> wanted_{0};
  std::condition_variable left_;  // callers that wait while another thread drives
  int waiting_ = 0;               // their number
  resident caller_, progress_;
  resident* resident_ = nullptr;  // who drives after the others' calls: caller_, progress_ or nobody
  bool notified_ = false;
  bool disarmed_ = false;  // since the sleeping thread armed the doorbells
  bool hurry_ = false;     // attended operations do not wait until callers are quiet
  bool ending_ = false;
  int attended_ = 0;
  std::uint64_t calls_ = 0;
  std::thread thread_;
};

}  // namespace tutti::core
