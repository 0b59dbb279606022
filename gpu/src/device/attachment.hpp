// SPDX-License-Identifier: Apache-2.0
// One device as one loop sees it: which points of its streams are waited for, who waits, and what must live
// until then.
//
// A point is an event and, where the driver can, a write to the stream's timeline word. The loop polls the
// words of the streams that have points, one load each, or queries the event of the oldest. Before it sleeps
// it looks again and has the driver notify its doorbell when the oldest point of each stream passes. Ten
// times a second the device's health is asked for: a failed context calls nobody.
#pragma once

#include "device/driver.hpp"
#include "device/waiter.hpp"

#include <tutti/detail/flow.hpp>
#include <tutti/detail/operation_kind.hpp>
#include <tutti/detail/poller.hpp>
#include <tutti/gpu/memory.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tutti::gpu::detail {

using tutti::detail::operation_kind;

class attachment;
// What is made for each operation is in recycled memory.
using tutti::detail::frame_allocator;
using tutti::detail::make_recycled;
template <class T>
using recycled_vector = std::vector<T, frame_allocator<T>>;
template <class T>
using recycled_deque = std::deque<T, frame_allocator<T>>;

using keeps = recycled_vector<std::shared_ptr<const void>>;

struct point {
  std::uint64_t sequence = 0;
  void* event = nullptr;
  std::shared_ptr<const std::atomic<bool>> recorded;  // of points that another thread enqueues: it has
  bool in_stream() const noexcept { return !recorded || recorded->load(std::memory_order_acquire); }
  waiter_list waiters;
  keeps alive;
};

// A stream, ours or one that was lent to us.
class stream_state final : public std::enable_shared_from_this<stream_state> {
 public:
  stream_state(std::shared_ptr<attachment> on, void* native, bool owned);
  stream_state(const stream_state&) = delete;
  stream_state& operator=(const stream_state&) = delete;
  ~stream_state();

  attachment& on() const noexcept { return *on_; }
  const std::shared_ptr<attachment>& shared_on() const noexcept { return on_; }
  void* native() const noexcept { return native_; }

  // After what is in the stream now. The point is valid until the loop goes on.
  point& signal();
  // A point that `enqueue` puts into the stream, from another thread. Points of one stream are enqueued in
  // the order in which they were reserved, by one thread, and no others are made meanwhile.
  struct reserved {
    point* at = nullptr;  // on the loop thread, until the loop goes on
    void* event = nullptr;
    std::uint64_t sequence = 0;
    std::shared_ptr<std::atomic<bool>> recorded;
  };
  // Throws errc::invalid_argument while the stream is being captured into a graph.
  void refuse_capture() const;
  reserved reserve();
  void enqueue(const reserved& r);
  // The memory stays until what is in the stream now has passed.
  void keep(keeps alive);

 private:
  friend class attachment;
  template <class Fill>
  point& add_point(const Fill& fill);
  bool passed(const point& p, std::string& why, bool& failed) noexcept;

  std::shared_ptr<attachment> on_;
  void* native_;
  bool owned_;
  bool listed_ = false;  // among the attachment's active ones
  word timeline_;
  std::uint64_t sequence_ = 0;
  std::uint64_t armed_ = 0;  // the point that the driver will ring for
  recycled_deque<point> points_;
};

// A word that closes a stream until the host has written it.
class gate_word {
 public:
  explicit gate_word(const std::shared_ptr<attachment>& on);
  gate_word(const gate_word&) = delete;
  gate_word& operator=(const gate_word&) = delete;
  ~gate_word();
  const word& get() const noexcept { return word_; }
  bool is_open() const noexcept { return word_.value->load(std::memory_order_acquire) != 0; }
  void open() noexcept;

 private:
  std::shared_ptr<detail::driver> driver_;
  word word_;
};

class attachment final : public tutti::detail::poller, public std::enable_shared_from_this<attachment> {
 public:
  attachment(const communicator& of, std::shared_ptr<detail::driver> d);
  attachment(runtime& rt, std::shared_ptr<detail::driver> d);
  ~attachment() override;

  detail::driver& driver() const noexcept { return *driver_; }
  const std::shared_ptr<detail::driver>& shared_driver() const noexcept { return driver_; }
  // Throws errc::wrong_thread, or the device's failure.
  void check() const;
  // Of this loop, for other threads.
  const std::shared_ptr<const doorbell_handle>& shared_doorbell() const noexcept { return doorbell_; }
  bool failed() const noexcept { return failure_ != errc::success; }
  const std::string& failure_text() const noexcept { return failure_text_; }
  // Ends everything that waits here.
  void fail(errc why, const std::string& text) noexcept;

  // `w` waits for the point, under the device's time limit unless it ends by a deadline of its own.
  void wait_for(point& p, waiter& w, bool has_deadline);
  // Resumes `w` from the loop, not from here.
  void resume_soon(waiter& w) noexcept;
  // It waits for something that is not a point (another rank, a submit thread): between the two the loop is
  // awake for it.
  void begin_other_wait() noexcept { begin_wait(); }
  void end_other_wait() noexcept { end_wait(); }

  // Called in every round of the loop while it is not empty: what other threads have done. By address, so
  // that it can be taken out.
  struct listener {
    virtual bool poll() noexcept = 0;  // true: something has happened
   protected:
    ~listener() = default;
  };
  void listen(listener& l) { listeners_.push_back(&l); }
  void unlisten(listener& l) noexcept { std::erase(listeners_, &l); }

  void* take_event();
  void give_event(void* event) noexcept;
  // Pinned memory for a while, `bytes` at least; comes back when the last reference goes.
  std::shared_ptr<allocation> borrow_pinned(std::size_t bytes);
  void add_gate(const std::shared_ptr<gate_word>& g);
  int closed_gates() noexcept;
  int gate_limit = 1;

  struct counts {
    std::uint64_t points = 0, arms = 0, queries = 0, polls = 0;
  } counters;

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
  void pop(stream_state& s, errc why, const std::string& text);
  bool notifies(void* event, void* stream) noexcept;  // when the event has passed
  void set_timer(duration in) noexcept;

  std::shared_ptr<detail::driver> driver_;
  std::shared_ptr<const doorbell_handle> doorbell_;
  std::vector<stream_state*> active_;
  std::vector<listener*> listeners_;
  waiter_list ready_;
  recycled_vector<keeps> released_;  // freed from deliver(): freeing may run anybody's destructor
  std::vector<void*> events_;
  std::vector<std::weak_ptr<gate_word>> gates_;
  errc failure_ = errc::success;
  std::string failure_text_;
  duration pause_{};
  std::chrono::steady_clock::time_point health_at_{};
  // Pinned memory by its size.
  std::multimap<std::size_t, void*, std::less<>, frame_allocator<std::pair<const std::size_t, void*>>> spare_;
};

}  // namespace tutti::gpu::detail
