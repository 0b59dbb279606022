// SPDX-License-Identifier: Apache-2.0
// poller: joins a rank's loop. The loop polls the extension's work while it spins, arms it before it sleeps, can be woken
// by it, and delivers its completions as it delivers its own.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/detail/asio_config.hpp>
#include <tutti/extend/version.hpp>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>

namespace tutti {
class runtime;
}

namespace tutti::extend::inline v1 {

// A source of work that a loop polls. All calls happen on the loop thread, except notify().
class poller {
 public:
  using executor_type = boost::asio::io_context::executor_type;
  using duration = std::chrono::steady_clock::duration;

  // Adds the poller to a loop. Call it on the loop thread; if there is none yet, this thread becomes it. The
  // runtime outlives the poller. Until the poller is destroyed, the io_context has work. Texts name `call`.
  // Errors: throws errc::invalid_argument (an empty communicator), errc::wrong_thread or errc::shut_down.
  explicit poller(runtime& rt, const char* call = "joining the loop");
  explicit poller(const communicator& of, const char* call = "joining the loop");
  poller(const poller&) = delete;
  poller& operator=(const poller&) = delete;
  virtual ~poller();

  executor_type get_executor() const noexcept;
  // The timeout of operations on the communicator of the constructor; for a runtime, that of init_options.
  std::chrono::milliseconds timeout() const noexcept;
  bool on_loop_thread() const noexcept;

  // Wakes the loop so that it polls. Call it from any thread or from a signal handler.
  // Cost: one system call, whether or not the loop sleeps.
  void notify() noexcept;
  // The descriptor that notify() writes the 8-byte number one to.
  int doorbell() const noexcept;

 protected:
  // Does all work that needs no blocking. Returns whether there was any.
  virtual bool poll() noexcept = 0;
  // Called before the loop sleeps: from now on each change must be reported by notify(). Returns true if
  // something has already changed, so that the loop stays awake.
  virtual bool arm() noexcept = 0;
  virtual void disarm() noexcept = 0;
  // Called at the time set by arm_timer().
  virtual void timer_fired() noexcept = 0;
  // Called after deliver_soon(), with no code of the loop's sources on the stack. May destroy the poller.
  virtual void deliver() noexcept = 0;

  // Mark that something is awaited. Between the two calls the loop spins for its budget before it sleeps.
  void begin_wait() noexcept;
  void end_wait() noexcept;
  // How long the loop spins, and a thread beside it may; zero if ranks share cores.
  std::chrono::nanoseconds spin_budget() const noexcept;
  void deliver_soon() noexcept;
  void arm_timer(duration from_now) noexcept;  // replaces an earlier time
  void cancel_timer() noexcept;

 private:
  struct source;
  std::unique_ptr<source> source_;
};

}  // namespace tutti::extend::inline v1
