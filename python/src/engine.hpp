// SPDX-License-Identifier: Apache-2.0
// What all process groups of this process share: one loop, which whoever waits drives, and the thread that runs
// what may take the interpreter's lock.
#pragma once

#include "comm/runtime_state.hpp"
#include "core/driver.hpp"
#include "core/forked.hpp"

#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <tutti/detail/deadline.hpp>
#include <tutti/runtime.hpp>
#include <vector>

#include <c10/util/intrusive_ptr.h>

namespace tutti::python {

class work;
using work_ref = c10::intrusive_ptr<work>;

class engine {
 public:
  // Made by the first process group, and never destroyed: Python may end in any order.
  static engine& get();
  // Null: there is none yet.
  static engine* made() noexcept;

  core::driver& driver() noexcept { return driver_; }
  tutti::runtime& runtime() noexcept { return runtime_; }

  // On the loop. It is finished, by finish_ended() or the thread, when the loop is somebody else's.
  void add_ended(work_ref w, bool urgent) noexcept;
  // Not on the loop, before a call into Python or PyTorch returns.
  void finish_ended();

  // Returns when everything that was begun has ended and all worlds have been left, or at the deadline; then there
  // are no threads of this object's any more, and operations go on only while they are waited for. Python is about
  // to end.
  void shut_down(core::time_point deadline);

 private:
  engine();
  void finish_urgent();

  boost::asio::io_context context_;
  tutti::runtime runtime_{context_};
  core::driver driver_{runtime_.state().loop()};
  std::vector<work_ref> ended_;  // on the loop
  bool is_urgent_ = false;       // likewise: one of them has callbacks
  std::mutex mutex_;
  std::condition_variable wanted_;
  bool is_wanted_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tutti::python
