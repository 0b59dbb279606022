// SPDX-License-Identifier: Apache-2.0
#include "core/loop_driver.hpp"

#include "base/cycles.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <tutti/error.hpp>

namespace tutti::core {
namespace {

// Rounds between checks of Asio's handlers: each is a system call.
constexpr unsigned looks_between_asio = 128;
constexpr unsigned rounds_between_yields = 32;
// A thread that wants the loop spins for about this many pauses before it asks the kernel.
constexpr int pauses_for_lock = 500;
// Asio's descriptors, which accept connections, do not end a sleep: they are checked this often.
constexpr auto shortest_sleep = std::chrono::milliseconds(1);
constexpr auto longest_sleep = std::chrono::milliseconds(50);
// How often the thread checks whether callers still drive the loop: with operations in progress, and without.
constexpr auto between_calls = std::chrono::microseconds(200);
constexpr auto after_calls = std::chrono::milliseconds(2);

}  // namespace

loop_driver::loop_driver(core::loop& l) : loop_(l) {
  loop_.set_stepped();
  loop_.backend();  // nothing that can fail is left for later
  thread_ = std::thread([this] { progress(); });
}

loop_driver::~loop_driver() {
  stop();
  loop_.bind_to_this_thread();  // for what belongs to the thread
}

void loop_driver::stop() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock hold(mutex_);
    ending_ = true;
  }
  ::eventfd_write(progress_.kick.get(), 1);
  thread_.join();
}

void loop_driver::lock() {
  if (is_parents()) throw error(errc::wrong_thread, wrong_thread_text());
  wanted_.fetch_add(1, std::memory_order_relaxed);
  bool have = mutex_.try_lock();
  for (int i = 0; !have && i < pauses_for_lock; ++i) {
    base::relax();
    have = mutex_.try_lock();
  }
  if (!have) mutex_.lock();
  wanted_.fetch_sub(1, std::memory_order_relaxed);
  loop_.bind_to_this_thread();
}

void loop_driver::unlock() noexcept {
  loop_.unbind();
  mutex_.unlock();
}

void loop_driver::enter() {
  lock();
  if (loop_.unpark()) disarmed_ = true;
}

void loop_driver::leave() {
  loop_.step();
  if (resident_ != &caller_) {
    leave_to_next();
    return;
  }
  // A caller goes on driving: it arms the doorbells anew.
  if (notified_ && waiting_ > 0) left_.notify_all();
  const bool kick = std::exchange(disarmed_, false) && caller_.sleeps;
  unlock();
  if (kick) ::eventfd_write(caller_.kick.get(), 1);
}

void loop_driver::round(unsigned number) noexcept {
  if (number % looks_between_asio != 0) return;
  loop_.context().restart();
  loop_.context().poll();
}

// Lets the threads that want the loop have it for a round of their own.
void loop_driver::give_way() {
  unlock();
  for (int i = 0; wanted_.load(std::memory_order_relaxed) > 0 && i < pauses_for_lock; ++i) base::relax();
  mutex_.lock();
  loop_.bind_to_this_thread();
}

// Sleeps without the loop. Ends by a kick, at the time, or, with `watch_loop`, when the loop has work.
void loop_driver::sleep(resident& as, bool watch_loop, time_point until) {
  const int kick = as.kick.get();
  pollfd watched[2] = {{kick, POLLIN, 0}, {watch_loop ? loop_.backend().wait_descriptor() : -1, POLLIN, 0}};
  const auto left = std::max<duration>(until - clock::now(), duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec time{static_cast<time_t>(seconds.count()), static_cast<long>((left - seconds).count())};
  as.sleeps = true;
  unlock();
  ::ppoll(watched, 2, &time, nullptr);
  eventfd_t count = 0;
  if ((watched[0].revents & POLLIN) != 0) ::eventfd_read(kick, &count);
  mutex_.lock();
  loop_.bind_to_this_thread();
  as.sleeps = false;
}

// Drives as the resident: until done, the deadline, or replacement by another thread. Returns true if done.
bool loop_driver::drive(resident& as, predicate done, const void* what, time_point deadline) {
  resident_ = &as;
  unsigned number = 0;
  duration nap = shortest_sleep;
  time_point until{};  // end of the spin
  unsigned idle = 0;
  if (loop_.unpark()) disarmed_ = true;
  for (;;) {
    const bool any = loop_.step();
    if (std::exchange(notified_, false) && waiting_ > 0) left_.notify_all();
    if (done(what)) return true;
    if (loop_.engine().now() >= deadline) return false;
    if (wanted_.load(std::memory_order_relaxed) > 0) {
      give_way();
      if (resident_ != &as) return false;
      continue;
    }
    round(number++);
    if (any) {
      idle = 0;
      nap = shortest_sleep;
      continue;
    }
    const spin_policy& spin = loop_.spin();
    if (idle++ == 0)
      until = loop_.engine().now() + (&as == &caller_ ? spin.budget : std::chrono::nanoseconds(0));
    if (loop_.engine().now() < until) {
      // The kernel may have woken the very rank that is awaited on this core.
      if (spin.yields || idle % rounds_between_yields == 0) {
        ::sched_yield();
      } else {
        base::relax();
      }
      continue;
    }
    round(0);
    if (!loop_.park()) continue;
    disarmed_ = false;
    sleep(as, true, std::min({deadline, loop_.engine().timers().next(), clock::now() + nap}));
    nap = std::min<duration>(2 * nap, longest_sleep);
    if (resident_ != &as) return false;
    if (loop_.unpark()) disarmed_ = true;
    idle = 0;
    number = 0;
  }
}

bool loop_driver::run_until(predicate done, const void* what, time_point deadline) {
  lock();
  bool is_done = false;
  for (;;) {
    is_done = done(what);
    if (is_done || clock::now() >= deadline) break;
    if (resident_ != &caller_) {
      is_done = drive(caller_, done, what, deadline);
      resident_ = nullptr;
      break;
    }
    ++waiting_;
    loop_.unbind();
    {
      std::unique_lock hold(mutex_, std::adopt_lock);
      if (deadline == time_point::max()) {
        left_.wait(hold);
      } else {
        left_.wait_until(hold, deadline);
      }
      hold.release();
    }
    loop_.bind_to_this_thread();
    --waiting_;
  }
  leave_to_next();
  return is_done;
}

// Lets another caller or the thread go on, or tells the thread that the doorbells are no longer armed.
void loop_driver::leave_to_next() noexcept {
  ++calls_;
  if (waiting_ > 0) left_.notify_all();
  const bool kick = waiting_ == 0 && progress_.sleeps && (hurry_ || std::exchange(disarmed_, false));
  if (kick) progress_.sleeps = false;
  unlock();
  if (kick) ::eventfd_write(progress_.kick.get(), 1);
}

void loop_driver::progress() {
  const short_time_slices here;
  const auto never = [](const void* d) { return static_cast<const loop_driver*>(d)->ending_; };
  mutex_.lock();
  loop_.bind_to_this_thread();
  std::uint64_t seen = 0;
  while (!ending_) {
    const bool others_drive =
        resident_ == &caller_ || (calls_ != seen && !(std::exchange(hurry_, false) && attended_ > 0));
    seen = calls_;
    if (!others_drive) {
      drive(progress_, never, this, time_point::max());
      continue;
    }
    const duration nap = attended_ > 0 ? duration(between_calls) : duration(after_calls);
    sleep(progress_, false, clock::now() + nap);
  }
  unlock();
}

}  // namespace tutti::core
