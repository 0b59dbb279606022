// SPDX-License-Identifier: Apache-2.0
// The engine of one rank: polls sources, delivers completions, fires timers. It never blocks, and knows neither
// Asio nor ranks. core/loop.hpp runs it on an io_context; a simulator runs many engines in one thread.
#pragma once

#include "base/cycles.hpp"
#include "base/forks.hpp"
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

// An event that completes once, later. The engine delivers it from its ready list, with no code of a
// transport or of the matching on the stack. So the callee may start, cancel and destroy anything.
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
  callback on_expire = nullptr;  // called when its deadline has passed: ends it; the completion still comes
  void* user = nullptr;
  status result;
  time_point started{};  // set when the completion joins a list of waiting ones

 private:
  errc failure_ = errc::success;
  std::unique_ptr<std::string> text_;
};

// A source of work to poll: a transport, or the descriptors of the loop.
class source {
 public:
  virtual ~source() = default;
  // Does all work that needs no blocking. Returns whether there was any.
  virtual bool poll() noexcept = 0;
  // Called before the loop sleeps: from now on an event must signal the loop's descriptor. Returns true if an
  // event has already come, so that the loop stays awake.
  virtual bool arm() noexcept { return false; }
  // Called when the loop is awake again.
  virtual void disarm() noexcept {}
};

class progress_engine {
 public:
  explicit progress_engine(core::platform& e) noexcept
      : platform_(e), in_real_time_(&e == &core::platform::real()), now_(e.now()) {}
  progress_engine(const progress_engine&) = delete;
  progress_engine& operator=(const progress_engine&) = delete;

  void add(source& s) { sources_.push_back(&s); }
  // Adds a source that is only armed, not polled: for checks while the loop sleeps.
  void add_sleeper(source& s) { sleepers_.push_back(&s); }
  void remove(source& s) noexcept;

  // Whether this process was forked after this was made.
  bool is_parents() const noexcept { return made_in_ != base::forks(); }
  // Nothing is polled or delivered any more. A forked child abandons the engine when the program's code, called by
  // poll() or tick(), returns.
  void abandon() noexcept;

  // Records that a completion waits for an outside event, until end_wait(): the loop spins for its budget.
  void begin_wait() noexcept {
    ++waiting_;
    if (on_wait_ != nullptr) on_wait_(on_wait_owner_);
  }
  void end_wait() noexcept { --waiting_; }
  bool waiting() const noexcept { return waiting_ > 0; }
  // Sets a function that wakes a parked loop: called when a wait begins or a completion becomes ready.
  void set_on_wait(void (*f)(void*) noexcept, void* owner) noexcept {
    on_wait_ = f;
    on_wait_owner_ = owner;
  }

  // Queues the completion of `a`, also while the loop is parked.
  void complete(completion& a) noexcept {
    const bool first = ready_.empty();
    ready_.push_back(a);
    if (first && on_wait_ != nullptr) on_wait_(on_wait_owner_);
  }

  // Delivers completions, polls each source once, delivers what that completed. Returns whether anything happened.
  bool poll() noexcept;
  // Reads the clock and fires due timers.
  bool tick() noexcept;
  // Called before sleeping. Returns true, with the sources disarmed, if there is work to stay awake for.
  bool arm() noexcept;
  void disarm() noexcept;

  // The time of the last tick. Accurate to a few microseconds while the loop is busy: for deadlines only.
  time_point now() const noexcept { return now_; }
  // A time at most `age_of_recent` old, whatever the thread has done since. Usually does not read the clock.
  static constexpr std::chrono::microseconds age_of_recent{100};
  time_point recent() noexcept { return recent(base::cycles()); }
  // The same with a fresh reading of base::cycles(), or 0 for none.
  time_point recent([[maybe_unused]] std::uint64_t cycles) noexcept {
#if defined(__x86_64__)
    // A third of the cost of reading the clock. Simulated time differs from the processor's counter.
    if (in_real_time_ && cycles - cycles_then_ < cycles_that_do_not_matter) return now_;
#endif
    read_clock();
    return now_;
  }
  core::platform& platform() noexcept { return platform_; }
  timer_queue& timers() noexcept { return timers_; }

 private:
  static constexpr std::uint64_t cycles_that_do_not_matter =
      80'000;  // less than age_of_recent from 0.8 GHz up
  // Returns whether there were any.
  bool deliver() noexcept { return !ready_.empty() && deliver_some(); }
  bool deliver_some() noexcept;
  void read_clock() noexcept;

  const unsigned made_in_ = base::forks();
  core::platform& platform_;
  [[maybe_unused]] const bool in_real_time_;
  time_point now_;
  std::uint64_t cycles_then_ = 0;  // the processor's counter when now_ was read
  timer_queue timers_;
  std::vector<source*> sources_;
  std::vector<source*> sleepers_;
  base::intrusive_list<completion, ready_tag> ready_;
  std::size_t waiting_ = 0;
  void (*on_wait_)(void*) noexcept = nullptr;
  void* on_wait_owner_ = nullptr;
};

}  // namespace tutti::core
