// SPDX-License-Identifier: Apache-2.0
// Runs an engine on an Asio io_context: only the io_context blocks, only the engine spins.
//
// One turn is one handler. It polls the engine for the spin budget. Asio's own handlers get their turn after
// a streak of idle rounds, and at least every few hundred completions. Then the turn arms the doorbells, polls
// once more, and returns: the io_context, which may be the user's, sleeps on one descriptor.
#pragma once

#include "core/backend.hpp"
#include "core/progress_engine.hpp"
#include "core/scheduling.hpp"
#include "core/stall_watch.hpp"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tutti/detail/flow.hpp>

namespace tutti::flight {
class recorder;
class recorder_slot;
}  // namespace tutti::flight

namespace tutti::core {

class loop;
struct loop_timer_tag;

// A timer that a coroutine of the program waits for. It keeps its loop running. If that loop's runtime ends
// first, another one on the same io_context takes it over; without one, it never fires.
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

// The text for a call from the wrong thread, or from a forked child, with the cure.
const char* wrong_thread_text() noexcept;

struct loop_counters {
  std::uint64_t turns = 0;
  std::uint64_t parks = 0;
};

class loop {
 public:
  explicit loop(boost::asio::io_context& context, core::platform& from = core::platform::real());
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  ~loop();

  // Whether this process was forked after this was made, and ends when it returns to it.
  bool is_parents() const noexcept { return engine_.is_parents(); }

  boost::asio::io_context& context() noexcept { return context_; }
  boost::asio::io_context::executor_type executor() noexcept { return context_.get_executor(); }
  core::progress_engine& engine() noexcept { return engine_; }
  // Makes the backend on the first call, on the loop thread: an io_uring belongs to the thread that made it.
  core::backend& backend();

  // Where this loop's events are recorded. Call it on the loop thread.
  flight::recorder_slot& recorder_slot();
  flight::recorder& recorder();

  void set_spin(const spin_policy& policy) noexcept { spin_ = policy; }
  const spin_policy& spin() const noexcept { return spin_; }
  // Whether what this rank waits for needs its core: a wait must not spin, even for a moment.
  bool yields() const noexcept { return spin_.yields || peer_on_this_core_; }

  // Keeps the loop alive: while there is a hold, the io_context has work. Call it on the loop thread.
  void hold() noexcept;
  void release() noexcept;

  // Makes the loop stepped: turns come from calls of step(), which also run the io_context's handlers. Call
  // it before anything else. Such a loop may change threads, so its backend is epoll.
  void set_stepped() noexcept { stepped_ = scheduled_ = true; }
  bool stepped() const noexcept { return stepped_; }
  // Runs one round of a stepped loop, on this thread from here on. Returns whether anything happened.
  bool step() noexcept;
  // Before sleeping on backend().wait_descriptor(): arms the doorbells, or returns false if there is work.
  bool park();
  // Before the next step after that. Returns whether they were armed.
  bool unpark() noexcept;

  // Makes the next turn happen soon. Call it on the loop thread.
  void wake() noexcept;
  // Counts a vain system call of a source: for a waiting loop it takes as long as some rounds.
  void note_system_call() noexcept { ++system_calls_; }
  // Ends the current turn as soon as possible, so that io_context::stop() takes effect.
  void leave_turn() noexcept { leaving_ = true; }
  // Another loop on the same io_context, or null.
  loop* sibling() const noexcept;
  // Whether a turn of this loop is on the stack.
  bool in_turn() const noexcept { return ended_ != nullptr; }
  // Nothing is polled or delivered from here on. The turn on the stack drops `owner`, of the loop, at its end.
  void end_after_turn(std::shared_ptr<void> owner) noexcept;

  // Makes this thread the loop thread. The caller ensures that no other thread runs the io_context.
  void bind_to_this_thread() noexcept;
  // Leaves the loop without a thread. Call it on the loop thread.
  void unbind() noexcept;
  // As bind_to_this_thread, but returns false if another thread is the loop thread, or in a forked child.
  bool claim_this_thread() noexcept;
  // Whether another one's io_context runs on this thread, and not this one's: what is started here would not go on.
  bool stands_still() noexcept;
  bool on_this_thread() const noexcept {
    return thread_.load(std::memory_order_relaxed) == this_thread() && !is_parents();
  }
  // The loop that is running on this thread: the stepped one that was last bound here, or one whose
  // io_context runs here. The first thread that asks becomes the loop thread; null if another one is. If no loop
  // is running, the one that was last bound to this thread, or null.
  static loop* current() noexcept;
  // current(), or throws errc::wrong_thread for the operation `what`, with a cure.
  static loop& here(std::string_view what, std::string_view cure);
  // Resumes `h` here; on a second thread of a loop's io_context, on the loop's own thread, and throws.
  static void resume_here(std::coroutine_handle<> h);

  const loop_counters& counters() const noexcept { return counters_; }
  // Computation on the loop thread while the loop is awake, or in coroutines that Asio's handlers resume; not in
  // handlers of the user while the loop sleeps.
  const stall_counters& stalls() const noexcept { return stall_watch_.counters(); }

 private:
  struct handler;
  void schedule() noexcept;
  friend class loop_timer;
  void retire() noexcept;
  struct at_work;
  static at_work find_at_work() noexcept;
  // What handlers do.
  void turn();
  void end_sleep();
  void end_alarm();
  // Spins for the budget; returns false when it is time to park.
  bool stay_awake();
  // Yields. Returns whether another thread had the core for as long as an awaited rank takes.
  bool give_way() noexcept;
  bool tick() noexcept;  // the engine's tick, and a check for stalls
  void end_turn();       // parks, unless another turn follows
  void watch_and_set_alarm();

  boost::asio::io_context& context_;
  core::progress_engine engine_;
  std::unique_ptr<core::backend> backend_;
  std::optional<boost::asio::posix::stream_descriptor> descriptor_;  // the backend's, which owns it
  std::optional<boost::asio::steady_timer> timer_;  // made at the first sleep: it costs three descriptors
  time_point timer_at_ = time_point::max();
  spin_policy spin_;
  bool peer_on_this_core_ = false;  // the last yields let an awaited rank run
  loop_counters counters_;
  stall_watch stall_watch_;
  std::shared_ptr<flight::recorder_slot> recorder_slot_;
  flight::recorder* recorder_ = nullptr;    // that of the recorder slot
  std::shared_ptr<loop*> alive_;            // what handlers hold: this, or null when it has gone
  std::shared_ptr<void>* ended_ = nullptr;  // in a turn: what owns the loop, if it ends with that turn
  base::intrusive_list<loop_timer, loop_timer_tag> timers_;
  static const void* this_thread() noexcept {
    static constinit thread_local char mark = 0;
    return &mark;
  }
  // Identifies the thread that runs the loop, for any thread; null: none.
  std::atomic<const void*> thread_{nullptr};
  unsigned system_calls_ = 0;  // vain ones, since the loop last counted them
  int holds_ = 0;
  bool scheduled_ = false;     // a turn is posted or running
  bool parked_ = false;        // doorbells are armed
  bool wait_pending_ = false;  // an async_wait on the descriptor is outstanding
  bool leaving_ = false;
  bool stepped_ = false;  // scheduled_ then stays true
};

// Suspends a coroutine for a time, by the engine's clock. The caller keeps the loop alive meanwhile.
class pause : public std::suspend_always {
 public:
  pause(core::loop& l, duration how_long) noexcept
      : loop_(l), until_(l.engine().platform().now() + how_long) {}

  void await_suspend(std::coroutine_handle<> h) {
    timer_.emplace(
        [](void* frame) noexcept { detail::resume_bounded(std::coroutine_handle<>::from_address(frame)); },
        h.address());
    loop_.engine().timers().arm(*timer_, until_);
    loop_.wake();  // a parked loop sleeps until a time chosen before this one was known
  }

 private:
  core::loop& loop_;
  const time_point until_;
  std::optional<timer> timer_;
};

}  // namespace tutti::core
