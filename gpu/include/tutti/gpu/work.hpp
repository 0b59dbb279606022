// SPDX-License-Identifier: Apache-2.0
// operation and work: what is to be done on a device, and what has been started there.
#pragma once

#include <tutti/detail/operation_kind.hpp>
#include <tutti/gpu/detail/waiter.hpp>
#include <tutti/gpu/memory.hpp>
#include <tutti/status.hpp>
#include <tutti/task.hpp>

#include <coroutine>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace tutti::detail {
struct call;
}
namespace tutti::gpu {

class stream;

// How a collective of a device_communicator moves its data.
enum class path : std::uint8_t {
  automatic,
  one_device,  // one kernel on the device that all ranks share
  staged       // through host memory and the CPU communicator, in chunks that overlap
};
const char* name_of(path way) noexcept;

namespace detail {

class stream_state;
class attachment;
struct work_state;

using tutti::detail::operation_kind;

struct call;
// Who carries a call out: a stream for copies, the ranks of a communicator.
class target {
 public:
  virtual ~target() = default;
  // Starts it now; what goes wrong is in the result.
  virtual std::shared_ptr<work_state> start(call what) = 0;
};

struct call {
  call(operation_kind k, std::shared_ptr<target> who, std::shared_ptr<stream_state> s) noexcept
      : kind(k), to(std::move(who)), on(std::move(s)) {}
  operation_kind kind;
  path way = path::automatic;
  std::shared_ptr<target> to;
  std::shared_ptr<stream_state> on;  // after what is in this stream when the call starts
  view in;
  view out;
  int peer = -1;  // destination, source or root
  int tag = 0;
  std::byte value{};
  double factor = 1;  // of conversions
  tutti::detail::reduction op;
  std::shared_ptr<const void> extra;  // of batches: the messages
  // Of an operation of tutti::communicator: while that runs, and the event that it comes after.
  const tutti::detail::call* whole = nullptr;
  std::shared_ptr<void> ready;
};

std::shared_ptr<work_state> start(call what);
bool is_done(const work_state& w) noexcept;
void abandon(
    work_state& w) noexcept;  // nobody waits for the result any more: host memory is not written from now on

// Waits until the work is done, or until it is in the device's hands.
class work_awaiter : suspended {
 public:
  enum class until : std::uint8_t { done, enqueued };
  work_awaiter(std::shared_ptr<work_state> w, until u) noexcept;
  explicit work_awaiter(call what) noexcept : work_awaiter(nullptr, until::done) {
    lazy_ = std::make_unique<call>(std::move(what));
  }
  ~work_awaiter();

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) {
    if (!begin(h, "the operation")) return false;
    if (!wait()) return false;
    joined();
    return true;
  }
  status await_resume() const;

 private:
  static void stop(suspended& self, errc why, const std::string& text) noexcept;
  bool wait();
  std::shared_ptr<work_state> work_;
  std::unique_ptr<call> lazy_;
  until until_;
};

template <class Op>
task<status> as_task(Op op) {
  const status result = co_await std::move(op);
  co_return result;
}

}  // namespace detail

// Work for a device that does nothing until it is awaited, started, or called with a completion token; once,
// as an rvalue. Awaiting resumes the host when the device has done it: what it wrote into host memory is
// there then, and what it wrote on the device is there for everything that is enqueued afterwards. The status
// says what was moved (of receives, from whom).
//
// An await that is ended early (when_any, with_timeout, scopes) lets go at once of a copy, which the device
// then finishes for nobody; a collective is cancelled, which ends it on all ranks. Device memory that was
// given as a span must stay until the device has passed it in either case (a later stream::reached() tells);
// buffers stay by themselves.
class [[nodiscard(
    "an operation does nothing until it is awaited, started or given a completion token")]] operation {
 public:
  explicit operation(detail::call what) noexcept : what_(std::move(what)) {}

  detail::work_awaiter operator co_await() && { return detail::work_awaiter(std::move(what_)); }
  // Signature void(std::exception_ptr, status); on the loop thread.
  template <class Token>
  auto operator()(Token&& token) && {
    return detail::as_task(std::move(*this))(std::forward<Token>(token));
  }
  // Of a collective or message of a device_communicator: this way, on all ranks. errc::not_supported where it
  // cannot.
  operation by(path way) && noexcept {
    what_.way = way;
    return std::move(*this);
  }
  detail::call take() && noexcept { return std::move(what_); }

 private:
  detail::call what_;
};

// What work::enqueued() gives; see there.
class [[nodiscard("await it")]] enqueued_operation {
 public:
  explicit enqueued_operation(std::shared_ptr<detail::work_state> state) noexcept
      : state_(std::move(state)) {}
  detail::work_awaiter operator co_await() && {
    return detail::work_awaiter(std::move(state_), detail::work_awaiter::until::enqueued);
  }

 private:
  std::shared_ptr<detail::work_state> state_;
};

// Work that has been started. Move-only. Awaited from an lvalue, as often as wanted; errors are thrown from
// the await. Dropping it lets the device finish: nobody is told, and host memory that it was to write is not
// written any more.
class work {
 public:
  work() noexcept = default;
  explicit work(std::shared_ptr<detail::work_state> state) noexcept : state_(std::move(state)) {}
  work(work&&) noexcept = default;
  work& operator=(work&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~work() {
    if (state_) detail::abandon(*state_);
  }

  explicit operator bool() const noexcept { return state_ != nullptr; }
  bool done() const noexcept { return state_ == nullptr || detail::is_done(*state_); }
  // Asks a collective to end early, on all ranks; the await then throws errc::cancelled.
  void cancel() noexcept;

  detail::work_awaiter operator co_await() & {
    return detail::work_awaiter(state_, detail::work_awaiter::until::done);
  }
  // Completes when all of it is in the device's streams: a stream::wait(work) costs one event from then on.
  enqueued_operation enqueued() const { return enqueued_operation(state_); }

  const std::shared_ptr<detail::work_state>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<detail::work_state> state_;
};

}  // namespace tutti::gpu

namespace tutti {

// Starts it now: after what is on its stream at this moment.
inline gpu::work start(gpu::operation op) { return gpu::work(gpu::detail::start(std::move(op).take())); }

}  // namespace tutti
