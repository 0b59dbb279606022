// SPDX-License-Identifier: Apache-2.0
// pending_operations: the operations of one communicator that wait, and their default timeout.
//
// An operation is in one of two lists from watch() until it unlinks itself: in the order of their starts those under the
// default timeout, and those that end by a deadline of their own.
#pragma once

#include "base/intrusive_list.hpp"
#include "core/progress_engine.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti::comm {

class pending_operations {
 public:
  // `check` is called with `owner` some time after an operation began to wait, and again while others come.
  pending_operations(core::progress_engine& engine, std::chrono::milliseconds timeout,
                     void (*check)(void*) noexcept, void* owner) noexcept
      : engine_(engine), timeout_(timeout), timer_(&expire, this), check_timer_(check, owner) {}
  pending_operations(const pending_operations&) = delete;
  pending_operations& operator=(const pending_operations&) = delete;

  std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  std::string timeout_text() const;  // "timed out after 30 s"
  // Call it only while no operation waits under it.
  void set_timeout(std::chrono::milliseconds timeout) noexcept {
    timer_.cancel();  // it may be armed for a later time
    timeout_ = timeout;
  }

  // Makes `a` wait under the timeout, after which its on_expire is called. With `has_deadline` there is no such limit.
  // `cycles` is a recent reading of base::cycles(), or 0.
  void watch(core::completion& a, bool has_deadline, std::uint64_t cycles) noexcept {
    a.started = engine_.recent(cycles) + core::progress_engine::age_of_recent;  // a timeout never comes early
    (has_deadline ? patient_ : waiting_).push_back(a);
    if (!check_timer_.armed() || (!has_deadline && !timer_.armed())) [[unlikely]]
      arm_timers(a.started);
  }
  // Records that an operation waits for a message from any member. The next check takes it.
  void expect_anyone() noexcept { waits_for_anyone_ = true; }
  bool take_expects_anyone() noexcept { return std::exchange(waits_for_anyone_, false); }

  // Calls on_expire of each operation for which keeps(operation) is false. Returns whether there was any.
  template <class F>
  bool end_unless(F keeps) noexcept {
    bool any = false;
    for (auto* const list : {&waiting_, &patient_}) {
      operations pending;
      pending.splice_back(*list);
      while (core::completion* a = pending.pop_front()) {
        if (keeps(*a)) {
          list->push_back(*a);
        } else {
          a->on_expire(*a);
          any = true;
        }
      }
    }
    return any;
  }
  // From now on nothing times out, and no check comes.
  void stop() noexcept {
    timer_.cancel();
    check_timer_.cancel();
  }

 private:
  using operations = base::intrusive_list<core::completion, core::waiting_tag>;

  void arm_timers(core::time_point now) noexcept;
  static void expire(void* self) noexcept;

  core::progress_engine& engine_;
  std::chrono::milliseconds timeout_;
  operations waiting_;  // in the order of their starts
  operations patient_;  // those that end by a deadline of their own
  core::timer timer_;
  core::timer check_timer_;
  bool waits_for_anyone_ = false;
};

}  // namespace tutti::comm
