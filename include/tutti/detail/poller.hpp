// SPDX-License-Identifier: Apache-2.0
// The loop's entry for what is no communicator: libraries beside this one (devices) let a rank's loop poll
// their work, wake it, and get the completions delivered as the loop delivers its own.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/detail/asio_config.hpp>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>

namespace tutti {

class runtime;

namespace detail {

// Polled by the loop that it was made for. Everything happens on the loop's thread, notify() aside.
class poller {
 public:
  using executor_type = boost::asio::io_context::executor_type;
  using duration = std::chrono::steady_clock::duration;

  // On the loop thread, which this becomes when none has been yet. Throws tutti::error:
  // errc::invalid_argument (an empty communicator), errc::wrong_thread, errc::shut_down. The runtime outlives
  // the poller; until it is destroyed, the io_context has work.
  explicit poller(runtime& rt);
  explicit poller(const communicator& of);
  poller(const poller&) = delete;
  poller& operator=(const poller&) = delete;
  virtual ~poller();

  executor_type get_executor() const noexcept;
  // The time limit of operations on the communicator that this was made with; of a runtime, that of
  // init_options.
  std::chrono::milliseconds timeout() const noexcept;
  bool on_loop_thread() const noexcept;

  // Makes the loop get up and poll, from any thread, also from a handler of signals: one system call when it
  // sleeps or not.
  void notify() noexcept;
  // What notify() writes to: 8 bytes, a one.
  int doorbell() const noexcept;

 protected:
  // Does what can be done without blocking; true when that was anything.
  virtual bool poll() noexcept = 0;
  // The loop is about to sleep: from now on a change must be reported by notify(). True: something has
  // changed, stay up.
  virtual bool arm() noexcept = 0;
  virtual void disarm() noexcept = 0;
  // The time asked for by arm_timer() has come.
  virtual void timer_fired() noexcept = 0;
  // Asked for by deliver_soon(): no code of the loop's sources is on the stack. May destroy the poller.
  virtual void deliver() noexcept = 0;

  // Between the two, something is waited for: the loop spins within its budget before it sleeps.
  void begin_wait() noexcept;
  void end_wait() noexcept;
  void deliver_soon() noexcept;
  void arm_timer(duration from_now) noexcept;  // replaces an earlier wish
  void cancel_timer() noexcept;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace detail
}  // namespace tutti
