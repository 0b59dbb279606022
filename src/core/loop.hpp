// SPDX-License-Identifier: Apache-2.0
// Runs an engine on an Asio io_context: the io_context is the only blocker, the engine the only spinner.
//
// One turn is one handler: poll the engine for the spin budget, give Asio's own handlers their turn by idle
// streak and at least every few hundred completions, then arm the doorbells, look once more, and leave: the
// io_context sleeps on one descriptor. Only Asio's public interface is used, so the io_context may as well be
// the user's.
#pragma once

#include "core/backend.hpp"
#include "core/engine.hpp"
#include "core/kept_memory.hpp"
#include "core/spin_policy.hpp"
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

namespace tutti::flight {
class recorder;
class recorder_slot;
}  // namespace tutti::flight

namespace tutti::core {

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

  boost::asio::io_context& context() noexcept { return context_; }
  boost::asio::io_context::executor_type executor() noexcept { return context_.get_executor(); }
  core::engine& engine() noexcept { return engine_; }
  // Made on the first call, which must come from the loop thread: an io_uring belongs to the thread that made
  // it.
  core::backend& backend();

  // What happens on this loop is on record here. From the loop thread.
  flight::recorder_slot& recorder_slot();
  flight::recorder& recorder();

  void set_spin(const spin_policy& policy) noexcept { spin_ = policy; }
  const spin_policy& spin() const noexcept { return spin_; }

  // Holds the loop alive: while there is any hold, the io_context has work. From the loop thread.
  void hold() noexcept;
  void release() noexcept;

  // From now on the io_context is not where turns come from: whoever calls step() is the loop, and gives the
  // io_context's handlers their turn. Before anything else. Such a loop may change threads, so that its backend is
  // epoll.
  void set_stepped() noexcept { stepped_ = scheduled_ = true; }
  bool stepped() const noexcept { return stepped_; }
  // One round of a stepped loop, which is this thread's from here on; true when anything happened.
  bool step() noexcept;
  // Before whoever steps it sleeps, on backend().wait_descriptor() at least: true, the doorbells are armed; false,
  // something has turned up.
  bool lie_down();
  // Before the next step after that; true: it was lying.
  bool get_up() noexcept;

  // Makes the next turn happen soon; from the loop thread.
  void wake() noexcept;
  // A source has called the kernel in vain: for a loop that waits that is as long as some rounds.
  void note_system_call() noexcept { ++system_calls_; }
  // Lets the current turn end as soon as it can, so that io_context::stop() takes effect.
  void leave_turn() noexcept { leaving_ = true; }

  // Makes this thread the loop's: afterwards on_this_thread() is true here. The caller knows that no other
  // thread runs the io_context.
  void bind_to_this_thread() noexcept;
  // No thread is the loop's from now on; from the one that was.
  void unbind() noexcept;
  // As bind_to_this_thread, unless another thread is the loop's already: false.
  bool claim_this_thread() noexcept;
  bool on_this_thread() const noexcept { return thread_.load(std::memory_order_relaxed) == this_thread(); }
  // The loop that is at work on this thread: the stepped one that was last bound here, or one whose
  // io_context runs here. The first thread that asks becomes the loop's thread. Null: none, or another thread
  // is the loop's.
  static loop* running() noexcept;
  // The same; otherwise the loop that was last bound to this thread, or null.
  static loop* current() noexcept;
  // current(). Throws errc::wrong_thread where there is none; `what` names the caller's operation and `cure`
  // says what to do.
  static loop& here(std::string_view what, std::string_view cure);
  // Resumes `h` here; on a second thread of a loop's io_context: on the loop's own thread, and throws.
  static void resume_here(std::coroutine_handle<> h);

  const loop_counters& counters() const noexcept { return counters_; }
  // Computation on the loop thread, seen while the loop is awake or in coroutines that Asio's handlers
  // resume. What a handler of the user's own computes while the loop sleeps is not seen.
  const stall_counters& stalls() const noexcept { return stall_watch_.counters(); }

 private:
  struct turn_handler;
  struct wait_handler;
  // What handlers hold: the loop, null when it has gone, and the memory that they are kept in.
  struct anchor {
    explicit anchor(loop* l) noexcept : owner(l) {}
    loop* owner;
    reserved_block turn;
    reserved_block wait;
  };
  void schedule() noexcept;
  struct at_work;
  static at_work find_at_work() noexcept;
  void turn();
  // Spins for the budget; false: time to park.
  bool stay_awake();
  bool tick() noexcept;  // the engine's, and a look for stalls
  void park();
  void watch_and_set_alarm();

  boost::asio::io_context& context_;
  core::engine engine_;
  std::unique_ptr<core::backend> backend_;
  std::unique_ptr<boost::asio::posix::stream_descriptor> descriptor_;
  std::optional<boost::asio::steady_timer> timer_;  // from the first sleep on: it costs three descriptors
  time_point timer_at_ = time_point::max();
  spin_policy spin_;
  loop_counters counters_;
  stall_watch stall_watch_;
  std::shared_ptr<flight::recorder_slot> recorder_slot_;
  flight::recorder* recorder_ = nullptr;  // the recorder slot's
  std::shared_ptr<anchor> alive_;
  static const void* this_thread() noexcept {
    static constinit thread_local char mark = 0;
    return &mark;
  }
  // Which runs the loop; null: none. Read by others, which ask whether they are this one.
  std::atomic<const void*> thread_{nullptr};
  unsigned system_calls_ = 0;  // in vain, since the loop last counted them
  int holds_ = 0;
  bool scheduled_ = false;     // a turn is posted, or running
  bool parked_ = false;        // doorbells are armed
  bool wait_pending_ = false;  // an async_wait on the descriptor is outstanding
  bool leaving_ = false;
  bool stepped_ = false;  // then scheduled_ stays true
};

}  // namespace tutti::core
