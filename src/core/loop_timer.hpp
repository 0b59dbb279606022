// SPDX-License-Identifier: Apache-2.0
// A timer that a coroutine of the program waits for. It keeps its loop running.
#pragma once

#include "base/intrusive_list.hpp"
#include "core/timer_queue.hpp"

namespace tutti::core {

class loop;
struct loop_timer_tag;

// Belongs to a loop from arm() on. If that loop's runtime ends first, another one on the same io_context takes
// it over; without one, it never fires.
class loop_timer : public base::list_hook<loop_timer_tag> {
 public:
  loop_timer(timer::function fire, void* owner) noexcept : timer_(fire, owner) {}
  ~loop_timer() { disarm(); }
  void arm(loop& on, time_point when) noexcept;
  void disarm() noexcept;

 private:
  friend class loop;
  timer timer_;
  loop* loop_ = nullptr;
};

}  // namespace tutti::core
