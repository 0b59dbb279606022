// SPDX-License-Identifier: Apache-2.0
// The engine of one rank: sources are polled, completions are delivered, timers fire. It never blocks and
// knows neither Asio nor ranks; core/loop.hpp runs it on an io_context, and a simulator may run many of them
// in one thread.
#pragma once

#include "base/cycles.hpp"
#include "base/intrusive_list.hpp"
#include "core/platform.hpp"
#include "core/timer_queue.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <tutti/error.hpp>
#include <tutti/status.hpp>
#include <vector>

namespace tutti::core {

struct ready_tag;
struct waiting_tag;

// Something that completes once, later. The completion is delivered from the engine's ready list: no code of
// a transport or of the matching is on the stack then, so the callee may start, cancel and destroy what it
// likes.
class completion : public base::list_hook<ready_tag>, public base::list_hook<waiting_tag> {
 public:
  using callback = void (*)(completion&) noexcept;

  completion() noexcept = default;
  completion(const completion&) = delete;
  completion& operator=(const completion&) = delete;

  void set_failure(errc code, std::string text) noexcept;
  errc failure() const noexcept { return failure_; }
  std::string take_text() noexcept;

  callback on_done = nullptr;
  callback on_expire = nullptr;  // its deadline passed: end it; the completion still comes
  void* user = nullptr;
  status result;
  time_point started{};  // set where the completion joins a list of waiting ones

 private:
  errc failure_ = errc::success;
  std::unique_ptr<std::string> text_;
};

// Something polled for work: a transport, the descriptors of the loop.
class source {
 public:
  virtual ~source() = default;
  // Does what can be done without blocking; true when that was anything.
  virtual bool poll() noexcept = 0;
  // The loop is about to sleep: from now on an event must signal the loop's descriptor. True: an event came
  // meanwhile, stay up.
  virtual bool arm() noexcept { return false; }
  // The loop is awake again.
  virtual void disarm() noexcept {}
};

class engine {
 public:
  explicit engine(core::platform& e) noexcept
      : platform_(e), in_real_time_(&e == &core::platform::real()), now_(e.now()) {}
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  void add(source& s) { sources_.push_back(&s); }
  // Not polled, and only armed: for what must be looked after while the loop sleeps.
  void add_sleeper(source& s) { sleepers_.push_back(&s); }
  void remove(source& s) noexcept;

  // This process is a fork of the one that the engine belongs to: nothing is polled or delivered any more.
  void abandon() noexcept;

  // A completion now waits for something outside: the loop spins for it within its budget. Paired with
  // end_wait().
  void begin_wait() noexcept {
    ++waiting_;
    if (on_wait_ != nullptr) on_wait_(on_wait_owner_);
  }
  void end_wait() noexcept { --waiting_; }
  bool waiting() const noexcept { return waiting_ > 0; }
  // Called whenever a wait begins and whenever something is there to be delivered, so that a parked loop gets
  // up.
  void set_on_wait(void (*f)(void*) noexcept, void* owner) noexcept {
    on_wait_ = f;
    on_wait_owner_ = owner;
  }

  // Queues the completion of `a`. Also from a handler of Asio's that cancels something while the loop is
  // parked.
  void complete(completion& a) noexcept {
    const bool first = ready_.empty();
    ready_.push_back(a);
    if (first && on_wait_ != nullptr) on_wait_(on_wait_owner_);
  }

  // One round: deliver completions, poll every source once, deliver what that completed. True when anything
  // happened.
  bool poll() noexcept;
  // Reads the clock and fires timers that are due.
  bool tick() noexcept;
  // Before sleeping; true when something turned up and the loop must stay awake (the sources are disarmed
  // then).
  bool arm() noexcept;
  void disarm() noexcept;

  // As of the last tick: good to a few microseconds while the loop is busy, for deadlines and no more.
  time_point now() const noexcept { return now_; }
  // At most `age_of_recent` old, whatever the loop's thread has done since the last tick; mostly without
  // reading the clock.
  static constexpr std::chrono::microseconds age_of_recent{100};
  time_point recent() noexcept { return recent(base::cycles()); }
  // The same with a reading of base::cycles() of just now; 0: there is none.
  time_point recent(std::uint64_t cycles) noexcept;
  core::platform& platform() noexcept { return platform_; }
  timer_queue& timers() noexcept { return timers_; }
  std::uint64_t completions() const noexcept { return completions_; }

 private:
  bool deliver() noexcept;
  void read_clock() noexcept;

  core::platform& platform_;
  [[maybe_unused]] const bool in_real_time_;
  time_point now_;
  std::uint64_t cycles_then_ = 0;  // of the processor's counter when now_ was read
  timer_queue timers_;
  std::vector<source*> sources_;
  std::vector<source*> sleepers_;
  base::intrusive_list<completion, ready_tag> ready_;
  std::size_t waiting_ = 0;
  std::uint64_t completions_ = 0;
  void (*on_wait_)(void*) noexcept = nullptr;
  void* on_wait_owner_ = nullptr;
};

}  // namespace tutti::core
