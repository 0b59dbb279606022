// SPDX-License-Identifier: Apache-2.0
// A device as one loop sees it: the points of its streams, who waits for them, and what must live until they
// pass.
//
// A point is an event and, if the driver can, a write to the stream's timeline word. The loop polls the word
// of each stream with points, one load each, or queries the event of the oldest point. Before it sleeps it
// polls again, and has the driver notify its doorbell when the oldest point of each stream passes. It checks
// the device's health ten times a second, because a failed context notifies nobody.
#pragma once

#include "device/driver.hpp"
#include "device/pinned_pool.hpp"

#include <tutti/error.hpp>
#include <tutti/extend/operation_kind.hpp>
#include <tutti/extend/poller.hpp>
#include <tutti/extend/support.hpp>

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::gpu::impl {

using tutti::extend::operation_kind;

class attachment;
class gate_word;
class submit_thread;
// Objects made for each operation use recycled memory.
using tutti::extend::frame_allocator;
using tutti::extend::make_recycled;
template <class T>
using recycled_vector = std::vector<T, frame_allocator<T>>;
template <class T>
using recycled_deque = std::deque<T, frame_allocator<T>>;

using keeps = recycled_vector<std::shared_ptr<const void>>;

inline errc code_of(const error& e) noexcept { return static_cast<errc>(e.code().value()); }

// ---- waiters for events of a device ----

// Lives in a coroutine frame or an operation, and unlinks itself.
class waiter
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  waiter() noexcept = default;
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;

  // The first failure is kept.
  void set_failure(const error& e) noexcept {
    if (!failure_) failure_ = e;
  }
  const std::optional<error>& failure() const noexcept { return failure_; }
  void rethrow() const {
    if (failure_) throw *failure_;
  }
  // What it waits for has come, or failed.
  virtual void done() noexcept = 0;

  bool immediate = false;  // completion runs no code of the program
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

 private:
  std::optional<error> failure_;
};

using waiter_list = boost::intrusive::list<waiter, boost::intrusive::constant_time_size<false>>;

// Awaiter of a coroutine that waits in a list, until attachment::resume_soon() resumes it. It resumes with the
// reason when its scope is stopped.
class waits_in : public waiter, tutti::extend::stop_node {
 public:
  // `ready`: does not wait.
  waits_in(attachment& on, waiter_list& list, bool ready = false) noexcept
      : on_(on), list_(list), ready_(ready) {}

  bool await_ready() const noexcept { return ready_; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) {
    handle_ = h;
    tutti::extend::stop_scope* const scope = tutti::extend::scope_of(h);
    if (scope != nullptr && scope->stopped()) {
      set_failure(error(scope->why(), "the operation was not started: " + scope->text()));
      return false;
    }
    list_.push_back(*this);
    join(scope);
    return true;
  }
  void await_resume() const { rethrow(); }
  void done() noexcept final;

 private:
  void on_stop(const tutti::extend::stop_scope& stopped) noexcept final;

  attachment& on_;
  waiter_list& list_;
  const bool ready_;
  std::coroutine_handle<> handle_;
};

struct point {
  std::uint64_t sequence = 0;
  void* event = nullptr;
  std::shared_ptr<const std::atomic<bool>> recorded;  // null unless another thread enqueues the point
  bool in_stream() const noexcept { return !recorded || recorded->load(std::memory_order_acquire); }
  waiter_list waiters;
  keeps alive;
};

// A stream of the library or of the program.
class stream_state final : public std::enable_shared_from_this<stream_state> {
 public:
  stream_state(std::shared_ptr<attachment> on, void* native, bool owned);
  // Makes a stream of the library.
  static std::shared_ptr<stream_state> make(const std::shared_ptr<attachment>& on, bool urgent = true);
  stream_state(const stream_state&) = delete;
  stream_state& operator=(const stream_state&) = delete;
  ~stream_state();

  attachment& on() const noexcept { return *on_; }
  const std::shared_ptr<attachment>& shared_on() const noexcept { return on_; }
  void* native() const noexcept { return native_; }

  // Makes a point behind the work now in the stream. It is valid until control returns to the loop.
  point& signal();
  // A point that another thread puts into the stream by `enqueue`. One thread enqueues the points of a stream
  // in the order of their reservation, and no other points are made meanwhile.
  struct reserved {
    point* at = nullptr;  // for the loop thread, until it returns to the loop
    void* event = nullptr;
    std::uint64_t sequence = 0;
    std::shared_ptr<std::atomic<bool>> recorded;
  };
  // Throws errc::not_supported if the stream cannot wait for work of this device.
  void refuse_work_of(const attachment& other) const;
  // Throws errc::invalid_argument while the stream is being captured into a graph.
  void refuse_capture() const;
  reserved reserve();
  void enqueue(const reserved& r);
  // Closes a gate of device `by` in the stream.
  std::shared_ptr<gate_word> close(const std::shared_ptr<attachment>& by);
  // Keeps the memory until the stream has passed the work now in it.
  void keep(keeps alive);

 private:
  friend class attachment;
  point& add_point();
  void put(void* event, std::uint64_t sequence);  // behind the work in the stream
  bool passed(const point& p) const;

  std::shared_ptr<attachment> on_;
  void* native_;
  bool owned_;
  bool listed_ = false;  // in the attachment's active_
  word timeline_;
  std::uint64_t sequence_ = 0;
  std::uint64_t armed_ = 0;  // sequence of the point that the driver will notify for
  recycled_deque<point> points_;
};

// A word that a stream waits for until the host or another stream writes it.
class gate_word {
 public:
  // `on` has the word, and `of` the stream that waits for it. Throws errc::resources while no gate may close there.
  gate_word(const attachment& on, const attachment& of);
  ~gate_word();
  const word& get() const noexcept { return word_; }
  bool is_open() const noexcept { return word_.value->load(std::memory_order_acquire) != 0; }
  void open() noexcept;

 private:
  std::shared_ptr<gpu::impl::driver> driver_;
  word word_;
  std::shared_ptr<gpu::impl::driver> waits_;
  std::atomic<bool> closed_{true};
};

class attachment final : public tutti::extend::poller, public std::enable_shared_from_this<attachment> {
 public:
  // `of` is a communicator or a runtime.
  template <class Loop>
  attachment(Loop& of, std::shared_ptr<gpu::impl::driver> d)
      : poller(of, "opening a device"),
        driver_(std::move(d)),
        doorbell_(std::make_shared<doorbell_handle>(doorbell())),
        pinned_(std::make_shared<pinned_pool>(driver_, false)) {}
  ~attachment() override;

  gpu::impl::driver& driver() const noexcept { return *driver_; }
  const std::shared_ptr<gpu::impl::driver>& shared_driver() const noexcept { return driver_; }
  // Throws errc::wrong_thread, or the device's failure.
  void check() const;
  // The doorbell of this loop, for other threads.
  const std::shared_ptr<const doorbell_handle>& shared_doorbell() const noexcept { return doorbell_; }
  // Set once the device has failed.
  const std::optional<error>& failure() const noexcept { return failure_; }
  // Marks the device as failed, and ends all waits with the reason.
  void fail(const std::string& text) noexcept;

  // `w` waits for the point, at most timeout() unless `has_deadline` says that it has a limit of its own.
  void wait_for(point& p, waiter& w, bool has_deadline);
  // Resumes `w` from the loop, not from this call, unless it is immediate.
  void resume_soon(waiter& w) noexcept;
  void resume_soon(waiter_list& all, const std::optional<error>& failure = {}) noexcept {
    for (; !all.empty(); resume_soon(all.front()))
      if (failure) all.front().set_failure(*failure);
  }
  // Mark a wait for something that is not a point, such as a submit thread: the loop spins before it sleeps.
  using poller::begin_wait;
  using poller::end_wait;
  using poller::spin_budget;

  // Polled in every round of the loop, for what other threads have done.
  struct listener {
    virtual bool poll() noexcept = 0;  // true: something has happened
   protected:
    ~listener() = default;
  };
  void listen(listener& l) { listeners_.push_back(&l); }
  void unlisten(listener& l) noexcept { std::erase(listeners_, &l); }

  void* take_event();
  void give_event(void* event) noexcept;
  pinned_pool& pinned() const noexcept { return *pinned_; }
  void add_gate(const std::shared_ptr<gate_word>& g);
  int closed_gates() noexcept;
  int gate_limit = 1;
  std::weak_ptr<submit_thread> submits;  // submit_thread::of()

 protected:
  bool poll() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override {}
  void timer_fired() noexcept override;
  void deliver() noexcept override;

 private:
  friend class stream_state;
  void activate(stream_state& s);
  void forget(stream_state& s) noexcept;
  void pop(stream_state& s, const std::optional<error>& failure);

  std::shared_ptr<gpu::impl::driver> driver_;
  std::shared_ptr<const doorbell_handle> doorbell_;
  std::shared_ptr<pinned_pool> pinned_;
  std::vector<stream_state*> active_;
  std::vector<listener*> listeners_;
  waiter_list ready_;
  recycled_vector<keeps> released_;  // freed in deliver(): destructors of the program may run
  std::vector<void*> events_;
  std::vector<std::weak_ptr<gate_word>> gates_;
  std::optional<error> failure_;
  duration pause_{};
  std::chrono::steady_clock::time_point health_at_{};
};

// ---- what coroutines wait for ----

// Waits until another thread has set `flag`.
class polled_flag final : public waits_in, attachment::listener {
 public:
  polled_flag(attachment& on, const std::atomic<bool>& flag)
      : waits_in(on, waiting_, flag.load(std::memory_order_acquire)), on_(on), flag_(flag) {
    on_.listen(*this);
    on_.begin_wait();
  }
  ~polled_flag() {
    on_.unlisten(*this);
    on_.end_wait();
  }

 private:
  bool poll() noexcept override {
    if (!flag_.load(std::memory_order_acquire)) return false;
    on_.resume_soon(waiting_);
    return true;
  }
  attachment& on_;
  const std::atomic<bool>& flag_;
  waiter_list waiting_;
};

// A point in a stream that coroutines wait for.
class mark final : waiter {
 public:
  mark() noexcept { immediate = true; }
  // Puts the point behind the work now in `s`, which keeps the memory until then.
  void set(stream_state& s, keeps alive) {
    point& p = s.signal();
    p.alive = std::move(alive);
    on_ = &s.on();
    on_->wait_for(p, *this, false);
  }
  bool is_set() const noexcept { return on_ != nullptr; }
  // Or failed: an await then throws at once.
  bool has_passed() const noexcept { return is_set() && !is_linked(); }

  class awaiter final : public waits_in {
   public:
    explicit awaiter(mark& m) noexcept : waits_in(*m.on_, m.waiting_, m.has_passed()), mark_(m) {}
    void await_resume() const {
      rethrow();
      mark_.rethrow();
    }

   private:
    mark& mark_;
  };
  awaiter operator co_await() noexcept { return awaiter(*this); }  // once it is set

 private:
  void done() noexcept override { on_->resume_soon(waiting_); }
  attachment* on_ = nullptr;
  waiter_list waiting_;
};

}  // namespace tutti::gpu::impl
