// SPDX-License-Identifier: Apache-2.0
#include "core/loop.hpp"

#include "base/cycles.hpp"
#include "base/forks.hpp"
#include "base/log.hpp"
#include "base/throw_error.hpp"
#include "flight/recordings.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <mutex>
#include <tutti/detail/asio_await.hpp>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::core {
namespace {

// Idle rounds, some microseconds, between checks of Asio's handlers. With 512, two ranks woken onto one core
// waited for each other's whole budget: 34 us per message instead of 0.3.
constexpr unsigned rounds_between_asio = 128;
// So that a hot ping-pong does not starve timers and sockets.
constexpr unsigned busy_rounds_between_asio = 256;
constexpr unsigned rounds_between_clock = 64;
// Two ranks that share a core must not wait long for each other's reads of a socket.
constexpr unsigned rounds_of_a_system_call = 4;
// The first idle rounds have no pause instructions, of some dozens of cycles each: an answer is seen sooner.
constexpr unsigned rounds_without_pause = 64;
// Idle rounds before a loop yields to a rank that shares its core.
constexpr unsigned rounds_beside_a_peer = 4;
// How long such a yield lasts. Shorter: nobody wanted the core. Longer: another program had it.
constexpr std::chrono::nanoseconds least_yield{1'000};
constexpr std::chrono::nanoseconds most_yield{50'000};
// Busy rounds may be long: large messages are copied. Asio's timers are late by about this much at most.
constexpr unsigned busy_rounds_between_clock = 8;
constexpr auto longest_turn = std::chrono::microseconds(200);

thread_local loop* current_loop = nullptr;

struct all_loops {
  std::mutex lock{};
  std::vector<loop*> list{};
};
constinit base::of_each_process<all_loops> loops;

// Called when a forked child returns to the loop. Its sockets, rings and shared memory are its parent's.
// Anything it did to them, even closing in order, would affect the parent.
[[noreturn]] void end_forked_child() noexcept {
  base::log_error(
      "this process was forked by a rank and has come back to the rank's loop, which is its parent's: it "
      "ends here. A forked child uses no communicator, and ends by exec or _exit; start processes before "
      "tutti::run, or by posix_spawn");
  ::_exit(70);
}

[[noreturn]] void throw_second_thread(std::string_view what) {
  base::throw_error(errc::wrong_thread,
                    "{} on a second thread of an io_context: one thread runs the io_context of a "
                    "tutti::runtime, for as long as the runtime lives; give other threads an io_context "
                    "of their own, and reach this one by boost::asio::post",
                    what);
}

}  // namespace

const char* wrong_thread_text() noexcept {
  if (const all_loops* const before = loops.parents(); before != nullptr && !before->list.empty())
    return "called in a process that the rank has forked: a communicator is its parent's; let the child exec "
           "or _exit, and start processes before tutti::run, or by posix_spawn";
  return "called outside the communicator's loop thread; use boost::asio::post or boost::asio::co_spawn on "
         "communicator::get_executor()";
}

// What Asio calls. It holds a weak link to the loop: Asio may run or destroy it after the loop has gone. It recycles
// memory itself: Asio does so only within one run() or poll(), and the loop polls from inside a handler.
struct loop::handler {
  using allocator_type = detail::frame_allocator<std::byte>;
  allocator_type get_allocator() const noexcept { return {}; }

  std::shared_ptr<loop*> link;
  void (loop::*act)();
  // On a second thread of the io_context, leaves the work to the loop's own thread, and throws.
  void operator()(boost::system::error_code code = {}) const {
    loop* const l = *link;
    if (l == nullptr || (code && act == &loop::end_alarm)) return;
    if (l->is_parents()) end_forked_child();
    if (l->claim_this_thread()) return (l->*act)();
    boost::asio::post(l->context_, *this);
    throw_second_thread("a turn of the loop");
  }
};

loop::loop(boost::asio::io_context& context, platform& from)
    : context_(context), engine_(from), alive_(std::make_shared<loop*>(this)) {
  engine_.set_on_wait([](void* self) noexcept { static_cast<loop*>(self)->wake(); }, this);
  const std::scoped_lock hold(loops.get().lock);
  loops.get().list.push_back(this);
}

loop::~loop() {
  retire();
  if (descriptor_) descriptor_->release();
  if (backend_) engine_.remove(*backend_);
}

loop* loop::sibling() const noexcept {
  const std::scoped_lock hold(loops.get().lock);
  const auto at = std::find_if(loops.get().list.begin(), loops.get().list.end(),
                               [this](const loop* l) { return l != this && &l->context_ == &context_; });
  return at != loops.get().list.end() ? *at : nullptr;
}

// Handlers, coroutines and this thread no longer find the loop.
void loop::retire() noexcept {
  {
    const std::scoped_lock hold(loops.get().lock);
    std::erase(loops.get().list, this);
  }
  *alive_ = nullptr;
  if (current_loop == this) current_loop = nullptr;
  loop* const heir = timers_.empty() || stepped_ ? nullptr : sibling();
  while (loop_timer* const t = timers_.front()) {
    const time_point when = t->timer_.when();
    t->disarm();
    if (heir != nullptr) t->arm(*heir, when);
  }
}

void loop::end_after_turn(std::shared_ptr<void> owner) noexcept {
  retire();
  engine_.abandon();
  leaving_ = true;
  *ended_ = std::move(owner);
}

void loop_timer::arm(loop& on, time_point when) noexcept {
  on.engine().timers().arm(timer_, when);
  on.timers_.push_back(*this);
  loop_ = &on;
  on.hold();
  on.wake();  // a parked loop sleeps until a time chosen before this one was known
}

void loop_timer::disarm() noexcept {
  timer_.cancel();
  unlink();
  if (loop* const l = std::exchange(loop_, nullptr)) l->release();
}

struct loop::at_work {
  loop* mine = nullptr;               // or the one that was last bound here
  loop* of_another_thread = nullptr;  // its io_context also runs here
};

loop::at_work loop::find_at_work() noexcept {
  const auto runs_here = [](loop* l) {
    return l->context_.get_executor().running_in_this_thread() && !l->stepped_;
  };
  if (current_loop != nullptr && current_loop->is_parents()) current_loop = nullptr;
  loop* found = current_loop;
  if (found == nullptr || (!found->stepped_ && !runs_here(found))) {
    const std::scoped_lock hold(loops.get().lock);
    const auto at = std::find_if(loops.get().list.begin(), loops.get().list.end(), runs_here);
    found = at != loops.get().list.end() ? *at : nullptr;
  }
  if (found == nullptr) return {current_loop, nullptr};
  if (found->claim_this_thread()) return {found, nullptr};
  return {nullptr, found};
}

loop* loop::current() noexcept { return find_at_work().mine; }

loop& loop::here(std::string_view what, std::string_view cure) {
  const at_work now = find_at_work();
  if (now.of_another_thread != nullptr) throw_second_thread(what);
  if (now.mine != nullptr) return *now.mine;
  base::throw_error(errc::wrong_thread, "{} on a thread that runs no tutti::runtime; {}", what, cure);
}

void loop::resume_here(std::coroutine_handle<> h) {
  const at_work now = find_at_work();
  if (now.of_another_thread != nullptr) {
    boost::asio::post(now.of_another_thread->context_, [h] { detail::resume_from_asio(h); });
    throw_second_thread("a coroutine was to go on");
  }
  loop* const l = now.mine;
  if (l == nullptr) return detail::resume_bounded(h);
  const duration used = stall_watch::processor_time();
  const time_point start = clock::now();
  detail::resume_bounded(h);
  const time_point end = clock::now();
  // The resumed coroutine may end the runtime.
  if (end - start < stall_watch::least || current() != l) return;
  l->stall_watch_.note(start, end, stall_watch::processor_time() - used, l->engine_.waiting());
}

bool loop::claim_this_thread() noexcept {
  const void* none = nullptr;
  if (is_parents()) return false;
  if (!on_this_thread() && !thread_.compare_exchange_strong(none, this_thread())) return false;
  bind_to_this_thread();
  return true;
}

bool loop::stands_still() noexcept {
  loop* const now = current();
  return now != nullptr && &now->context_ != &context_ && now->executor().running_in_this_thread() &&
         !executor().running_in_this_thread();
}

void loop::unbind() noexcept {
  thread_.store(nullptr, std::memory_order_relaxed);
  if (current_loop == this) current_loop = nullptr;
  flight::recorder_slot::set_current(nullptr);
}

void loop::bind_to_this_thread() noexcept {
  thread_.store(this_thread(), std::memory_order_relaxed);
  current_loop = this;
  if (flight::recorder_slot::current() != recorder_slot_.get())
    flight::recorder_slot::set_current(recorder_slot_.get());
}

flight::recorder_slot& loop::recorder_slot() {
  if (recorder_slot_ == nullptr) {
    platform& from = engine_.platform();
    const bool real = &from == &platform::real();
    // For a simulated rank, the simulation's time.
    const auto simulated = [](const void* e) noexcept -> std::uint64_t {
      return static_cast<std::uint64_t>(
          const_cast<platform*>(static_cast<const platform*>(e))->now().time_since_epoch().count());
    };
    recorder_slot_ = flight::recorder_slot::take(real ? nullptr : +simulated, &from);
    recorder_ = &recorder_slot_->recorder();
    flight::recorder_slot::set_current(recorder_slot_.get());
  }
  return *recorder_slot_;
}

flight::recorder& loop::recorder() { return recorder_slot().recorder(); }

backend& loop::backend() {
  if (!backend_) {
    auto made = stepped_ ? std::make_unique<core::backend>() : make_backend();
    engine_.add(*made);
    backend_ = std::move(made);
  }
  if (!descriptor_ && !stepped_) descriptor_.emplace(context_, backend_->wait_descriptor());
  return *backend_;
}

void loop::hold() noexcept {
  if (holds_++ == 0) wake();
}

void loop::release() noexcept {
  if (--holds_ > 0) return;
  // Without holds nothing may keep the io_context at work.
  if (wait_pending_) {
    boost::system::error_code ignored;
    descriptor_->cancel(ignored);
  }
  if (timer_) timer_->cancel();
  timer_at_ = time_point::max();
}

void loop::wake() noexcept {
  if (scheduled_ || holds_ == 0) return;
  unpark();
  schedule();
}

bool loop::unpark() noexcept {
  if (!parked_) return false;
  parked_ = false;
  if (recorder_ != nullptr) recorder_->woke_up();
  engine_.disarm();
  return true;
}

bool loop::park() {
  backend();
  if (engine_.arm()) return false;
  if (recorder_ != nullptr) recorder_->fell_asleep();
  parked_ = true;
  return true;
}

void loop::schedule() noexcept {
  scheduled_ = true;
  boost::asio::post(context_, handler{alive_, &loop::turn});
}

void loop::end_sleep() {
  wait_pending_ = false;
  if (scheduled_) return;
  unpark();
  scheduled_ = true;
  turn();
}

void loop::end_alarm() {
  timer_at_ = time_point::max();
  wake();
}

void loop::turn() {
  ++counters_.turns;
  leaving_ = false;
  std::shared_ptr<void> ended;
  ended_ = &ended;
  bool awake = false;
  try {
    awake = stay_awake();
  } catch (...) {
    ended_ = nullptr;
    if (ended == nullptr) schedule();  // a handler of the program threw through the poll inside the turn
    throw;
  }
  ended_ = nullptr;
  if (ended != nullptr) return;  // which destroys this
  if (is_parents()) end_forked_child();
  if (awake) {
    schedule();
    return;
  }
  end_turn();
}

bool loop::step() noexcept {
  bind_to_this_thread();
  const bool fired = engine_.tick();
  return engine_.poll() || fired;
}

bool loop::tick() noexcept {
  const bool fired = engine_.tick();
  stall_watch_.check(engine_.now(), engine_.waiting());
  if (recorder_ != nullptr) recorder_->turned(recorder_->now());
  return fired;
}

bool loop::stay_awake() {
  tick();
  if (is_parents()) return false;
  unsigned idle = 0;
  unsigned since_asio = 0;
  unsigned busy = 0;
  bool gave_way = false;  // since the last round
  time_point until{};
  const time_point turn_ends = engine_.now() + longest_turn;
  while (holds_ > 0) {
    if (engine_.poll()) {
      if (std::exchange(gave_way, false)) peer_on_this_core_ = true;
      idle = since_asio = 0;
      system_calls_ = 0;
      if (++busy >= busy_rounds_between_asio || leaving_ || is_parents()) return true;
      if (busy % busy_rounds_between_clock == 0) {
        tick();
        if (engine_.now() >= turn_ends) return true;
      }
      continue;
    }
    gave_way = false;
    if (leaving_) return true;
    ++idle;
    since_asio += 1 + rounds_of_a_system_call * std::exchange(system_calls_, 0);
    if (idle == 1) {
      if (!engine_.waiting()) {
        // Nothing to spin for. Asio's handlers may have work.
        tick();
        return false;
      }
      until = time_point::min();
    }
    if (spin_.yields) {
      ::sched_yield();
      // Other threads may have had the core for long: that is no computation here.
      if (recorder_ != nullptr) recorder_->turned(recorder_->now());
    } else if (idle > rounds_without_pause) {
      base::relax();
    }
    const bool poll_asio =
        spin_.yields ? idle % spin_.yields_between_looks == 0 : since_asio >= rounds_between_asio;
    if (poll_asio || (idle % rounds_between_clock) == 0) {
      if (tick()) idle = 0;
      // The budget starts here: reading the clock for every message would cost too much.
      if (until == time_point::min()) until = engine_.now() + spin_.budget;
      if (engine_.now() >= until) return false;
    }
    // The kernel may have woken the very rank that is awaited on this core.
    if (!spin_.yields && (poll_asio || (peer_on_this_core_ && idle == rounds_beside_a_peer)))
      gave_way = give_way();
    if (poll_asio) {
      since_asio = 0;
      if (context_.poll_one() > 0) return true;
      if (context_.stopped()) return true;
    }
  }
  return false;
}

bool loop::give_way() noexcept {
  const time_point before = clock::now();
  ::sched_yield();
  const duration away = clock::now() - before;
  const bool gave_way = away > least_yield && away < most_yield;
  if (!gave_way) peer_on_this_core_ = false;
  return gave_way;
}

void loop::end_turn() {
  if (holds_ == 0) {
    scheduled_ = false;
    return;
  }
  if (!park()) return schedule();
  watch_and_set_alarm();
  ++counters_.parks;
  stall_watch_.pause();
  scheduled_ = false;
}

// Without memory for a wait the process ends, as for other small allocations.
void loop::watch_and_set_alarm() {
  const time_point next = engine_.timers().next();
  if (next < timer_at_) {
    // Only ever moved forward: if the timer comes early, nothing is due, and the next park sets it right.
    if (!timer_) timer_.emplace(context_);
    timer_at_ = time_point::max();
    timer_->expires_at(next);
    [this]() noexcept { timer_->async_wait(handler{alive_, &loop::end_alarm}); }();
    timer_at_ = next;
  }
  if (wait_pending_) return;
  [this]() noexcept {
    descriptor_->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                            handler{alive_, &loop::end_sleep});
  }();
  wait_pending_ = true;
}

}  // namespace tutti::core

namespace tutti::detail {

void resume_from_asio(std::coroutine_handle<> h) { core::loop::resume_here(h); }

}  // namespace tutti::detail
