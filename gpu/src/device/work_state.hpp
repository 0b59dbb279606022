// SPDX-License-Identifier: Apache-2.0
// State of an operation on a device: how far it is, which coroutines wait for it, and which streams.
#pragma once

#include "device/attachment.hpp"

#include <memory>
#include <optional>
#include <tutti/extend/call.hpp>
#include <tutti/gpu/memory.hpp>
#include <tutti/status.hpp>

namespace tutti::gpu::impl {

// What the device needs of a call. The call may end before the device has passed its work.
struct device_arguments {
  operation_kind kind{};
  view in{};
  view out{};
  int peer = -1;  // destination, source or root
  int tag = 0;
  std::byte value{};
  double factor = 1;  // for conversions
  tutti::extend::reduction op{};
  std::shared_ptr<const void> extra{};  // messages of a batch
  // For operations of tutti::communicator: the call while it runs, and the event to wait for first.
  const tutti::extend::call* whole = nullptr;
  std::shared_ptr<void> ready{};
};

struct work_state : std::enable_shared_from_this<work_state> {
  work_state(std::shared_ptr<attachment> a, device_arguments c) : on(std::move(a)), what(std::move(c)) {
    result.bytes = what.in.bytes();
  }
  ~work_state();

  // All work is in streams. It ends when `s` passes the work now in it: done, or with the device's failure.
  void finish_in(stream_state& s);
  // The two parts of it, for work that another thread enqueues. The operation takes over the event `passed`; `s`
  // waits for it, or comes after it, and opens the gates.
  void set_enqueued(void* passed, stream_state& s);
  void finish_at(point& p);
  void set_done() noexcept;
  // Ends the operation. The first reason is kept.
  void fail(const error& e) noexcept;
  waits_in until_enqueued() noexcept { return waits_in(*on, wait_enqueued, enqueued || done); }
  // Makes `s` wait for the operation.
  void make_wait(stream_state& s);
  void keep_until_done(std::shared_ptr<const void> k) { alive.push_back(std::move(k)); }
  // Throws why it has failed, if it has.
  void rethrow() const {
    if (failure) throw *failure;
  }

  std::shared_ptr<attachment> on;
  device_arguments what;
  bool enqueued = false;
  bool done = false;
  bool abandoned = false;  // nothing waits for it: host memory is not written any more
  std::optional<error> failure;
  status result;
  waiter_list wait_enqueued;
  waiter_list wait_done;
  // Asks the backend to end the operation. Null if it cannot be ended early.
  void (*stop)(work_state&, const error& why) = nullptr;
  void* owner = nullptr;  // for stop; of a download, the pinned memory that it is copied from at its end
  // For work that another thread enqueues: true if that failed. Passing its point then means nothing.
  std::shared_ptr<std::atomic<bool>> voided;

 private:
  struct passing final : waiter {
    passing() noexcept { immediate = true; }
    void done() noexcept override;
    std::shared_ptr<work_state> self;  // while the device works on it
  };
  void end() noexcept;
  void open_gates() noexcept;

  passing passing_;
  void* event_ = nullptr;
  recycled_vector<std::shared_ptr<gate_word>> gates_;
  keeps alive;
};

// The part of a request that streams can wait for.
class working_part {
 public:
  // Null while the operation is not in progress, and of reached().
  const std::shared_ptr<work_state>& work() const noexcept { return work_; }

 protected:
  virtual ~working_part() = default;
  // When the operation has ended, in whatever way. Releases the streams that wait for it.
  void end_work() noexcept;
  std::shared_ptr<work_state> work_;
};

}  // namespace tutti::gpu::impl
