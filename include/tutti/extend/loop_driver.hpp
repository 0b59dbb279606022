// SPDX-License-Identifier: Apache-2.0
// loop_driver: a loop that belongs to no single thread, for programs whose threads call in and block.
//
// A waiting caller polls the loop itself, so nothing is handed from thread to thread; a thread of the driver does what
// no caller waits for. One thread at a time is the loop.
#pragma once

#include <tutti/extend/version.hpp>
#include <tutti/runtime.hpp>

#include <chrono>
#include <memory>

namespace tutti::core {
class loop_driver;
}

namespace tutti::extend::inline v1 {

class loop_driver {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  // Starts the thread. `rt` outlives this and has not been used yet. Throws errc::resources.
  explicit loop_driver(runtime& rt);
  loop_driver(const loop_driver&) = delete;
  loop_driver& operator=(const loop_driver&) = delete;
  // Requires that no thread is in a call.
  ~loop_driver();
  // Ends the thread: from now on work progresses only during calls.
  void stop();

  // Whether this process was forked after this was made; calls then throw.
  bool is_parents() const noexcept;
  // Called on the loop. Whether all worlds have been left.
  bool has_left_all() const noexcept;

  // Makes this thread the loop as long as it lives: it may start, cancel and destroy what belongs to the loop.
  // Waits until the loop's thread ends its round. Throws errc::wrong_thread in a forked child.
  class entry {
   public:
    explicit entry(loop_driver& d);
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;
    ~entry();

   private:
    core::loop_driver& driver_;
  };

  // Drives the loop, or waits for the thread that does, until done() returns true; the loop calls it. Returns
  // false if the deadline has passed. Throws errc::wrong_thread in a forked child.
  template <class F>
  bool run_until(const F& done, time_point deadline) {
    return run_until([](const void* f) { return (*static_cast<const F*>(f))(); }, &done, deadline);
  }

  // Called on the loop: changes the number of operations that progress although no thread may wait for them: by
  // the driver's thread after this call with `now`, otherwise after a fifth of a millisecond without calls.
  void attend(int change, bool now = false) noexcept;
  // Called on the loop: what a thread waits for may have happened.
  void notify() noexcept;

 private:
  bool run_until(bool (*done)(const void*), const void* what, time_point deadline);

  runtime& runtime_;
  std::unique_ptr<core::loop_driver> driver_;
};

}  // namespace tutti::extend::inline v1
