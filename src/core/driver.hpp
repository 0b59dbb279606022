// SPDX-License-Identifier: Apache-2.0
// A loop that belongs to no thread: whoever waits drives it, and a thread of its own does what nobody waits for.
//
// For programs whose threads call in and block (PyTorch's): a caller that waits polls the loop itself, so nothing
// is handed from thread to thread. One thread at a time is the loop, under a mutex. It gives way to others between
// two rounds, and lets go of the loop while it sleeps.
#pragma once

#include "base/unique_fd.hpp"
#include "core/forked.hpp"
#include "core/loop.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace tutti::core {

class driver {
 public:
  // `l`, which outlives this, has done nothing yet. Starts the thread. Throws errc::resources.
  explicit driver(core::loop& l);
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  // No thread is in a call.
  ~driver();
  // Ends the thread: from now on nothing goes on but in calls.
  void stop();

  core::loop& loop() noexcept { return loop_; }
  // Whether this process was forked since this was made: calls throw.
  bool is_parents() const noexcept { return made_in_ != fork_generation(); }

  // This thread is the loop while this lives: it may start, cancel and destroy what belongs to the loop.
  // Waits for the thread that is, until its round is over. Throws errc::wrong_thread in a forked child.
  class entry {
   public:
    explicit entry(driver& d);
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;
    ~entry();

   private:
    driver& driver_;
  };

  // Drives the loop, or waits for the thread that does, until done() is true, which is called on the loop; false:
  // the deadline has passed. Throws errc::wrong_thread in a forked child.
  template <class F>
  bool run_until(const F& done, time_point deadline) {
    return run_until([](const void* f) { return (*static_cast<const F*>(f))(); }, &done, deadline);
  }

  // On the loop: so many more operations (or fewer) go on although nobody may be waiting for them. `now`: the
  // thread drives them from the end of this call on; else when no call has come for a fifth of a millisecond.
  void attend(int change, bool now = false) noexcept {
    attended_ += change;
    hurry_ = hurry_ || now;
  }
  // On the loop: what a thread waits for may have happened.
  void notify() noexcept { notified_ = true; }

 private:
  enum class role : unsigned char { nobody, caller, progress };
  using predicate = bool (*)(const void*);

  bool run_until(predicate done, const void* what, time_point deadline);
  void lock();
  void unlock() noexcept;
  void round(unsigned number) noexcept;
  void give_way();
  void sleep(int kick, bool watch_loop, time_point until);
  bool drive(role as, predicate done, const void* what, time_point deadline);
  void leave_to_next() noexcept;
  void progress();

  core::loop& loop_;
  const unsigned made_in_ = fork_generation();
  std::mutex mutex_;  // who holds it is the loop
  std::atomic<int> wanted_{0};
  std::condition_variable left_;  // callers that wait while another drives
  int waiting_ = 0;               // so many
  role resident_ = role::nobody;  // who goes on driving after the others' calls
  bool caller_sleeps_ = false;
  bool progress_sleeps_ = false;
  bool notified_ = false;
  bool disarmed_ = false;  // since who sleeps armed the doorbells
  bool hurry_ = false;     // what is attended does not wait until the callers are quiet
  bool ending_ = false;
  int attended_ = 0;
  std::uint64_t calls_ = 0;
  base::unique_fd caller_kick_;
  base::unique_fd progress_kick_;
  std::thread thread_;
};

}  // namespace tutti::core
