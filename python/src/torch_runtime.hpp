// SPDX-License-Identifier: Apache-2.0
// Shared by all process groups of this process: one loop, driven by any thread that waits, and threads for
// callbacks, which may take the interpreter's lock.
#pragma once

#include "base/intrusive_list.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <tutti/extend/loop_driver.hpp>
#include <tutti/extend/support.hpp>
#include <tutti/runtime.hpp>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace tutti::python {

class work;
struct group_hooks;
struct pending_receives;  // the list of a torch_runtime
using work_ref = c10::intrusive_ptr<work>;
using clock = std::chrono::steady_clock;
using time_point = clock::time_point;

class torch_runtime {
 public:
  // Created by the first process group; a forked child creates its own. Never destroyed, because Python may
  // end in any order.
  static torch_runtime& get();
  // nullptr before this process's first process group.
  static torch_runtime* made() noexcept;

  extend::loop_driver& driver() noexcept { return driver_; }
  tutti::runtime& runtime() noexcept { return runtime_; }
  // Whether it belongs to the process that forked this one: it has no threads here, and calls throw.
  bool is_parents() const noexcept { return driver_.is_parents(); }

  // Keeps tensors that a device may use after their operation has ended. Their end may take the interpreter's lock, so
  // finish_ended() frees them.
  std::shared_ptr<const void> kept_for_device(std::vector<at::Tensor> tensors);
  // On the loop. finish_ended() finishes it; one of this object's threads does if it has callbacks.
  void add_ended(work_ref w, bool has_callbacks) noexcept;
  // Not on the loop. Must run before a call into Python or PyTorch returns.
  void finish_ended();

  // Not on the loop. Completes futures of this group again soon: a callback that runs delays them.
  void look_again(std::shared_ptr<group_hooks> group);

  // Drives the loop until done() or the deadline; returns false at the deadline. The main thread runs Python's handlers
  // of signals meanwhile, and throws what they raise.
  template <class F>
  bool wait_until(const F& done, time_point deadline) {
    while (!driver_.run_until(done, std::min(deadline, next_signals()))) {
      if (clock::now() >= deadline) return false;
      handle_signals();
    }
    return true;
  }
  // Set by the Python module.
  static inline void (*handle_signals)() = nullptr;

  // On the loop. The work unlinks itself at its end.
  void add_receive(work& w) noexcept;
  // Not on the loop. Python ends: cancels the receives that wait for a message, so that they do not delay the end.
  void cancel_receives();
  // Stays here if Python ends and this is not the main thread, so that a daemon thread does not raise what the end causes.
  // `left`: another rank has ended in order. This one may do so, too, so it has a second to begin.
  void stay_if_ending(bool left) const noexcept;

  // Called when Python ends. Returns when all operations have ended and all worlds have been left, or at the deadline,
  // and no callback runs: these are the program's, and the timeouts of operations bound their waits. Then this object has
  // no threads, and operations progress only while a thread waits for them. The main thread runs Python's handlers of
  // signals meanwhile, and throws what they raise.
  void shut_down(time_point deadline);

 private:
  torch_runtime();
  void run_callbacks();
  static time_point next_signals() noexcept;
  void start_thread() noexcept;

  std::atomic<bool> python_ends_{false};
  boost::asio::io_context context_;
  tutti::runtime runtime_{context_};
  extend::loop_driver driver_{runtime_};
  std::vector<work_ref> ended_;                            // on the loop: they have no callbacks
  base::intrusive_list<work, pending_receives> receives_;  // on the loop
  std::mutex mutex_;                                       // of the rest
  std::condition_variable wanted_;
  std::deque<work_ref> with_callbacks_;
  bool many_ended_ = false;
  bool ending_ = false;
  std::vector<std::shared_ptr<group_hooks>> delayed_;
  std::vector<std::vector<at::Tensor>> unused_;  // the devices have finished with these
  std::atomic<bool> any_unused_{false};
  int idle_ = 0;  // threads that wait
  std::condition_variable now_idle_;
  std::vector<std::thread> threads_;
  std::vector<std::thread> ended_threads_;  // to be joined
};

}  // namespace tutti::python
