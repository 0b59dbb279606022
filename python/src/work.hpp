// SPDX-License-Identifier: Apache-2.0
// One operation of a process group: PyTorch's Work.
#pragma once

#include "base/intrusive_list.hpp"
#include "device_place.hpp"
#include "tensors.hpp"
#include "torch_runtime.hpp"
#include "torch_versions.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tutti/extend/call.hpp>
#include <tutti/extend/running_task.hpp>
#include <tutti/request.hpp>
#include <tutti/task.hpp>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tutti::python {

class work;

// The hooks of one process group. Works may outlive the group.
struct group_hooks : std::enable_shared_from_this<group_hooks> {
  using on_completion_hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;
  void call(const work& w) noexcept;                // on the loop, when it has ended
  void call_on_completion(const work& w) noexcept;  // not on the loop, when it has finished
  // The work uses this memory until it has finished. Others that would write what it uses, or use what it writes, wait
  // for it first, so that operations on one tensor take effect in the order of their calls.
  void use(const work_ref& w, const std::vector<memory_range>& memory);
  void wait_for(const memory_range& memory);
  void release(const work& w) noexcept;
  // Not on the loop. Completes the futures of works that have finished, one work at a time in the order of their starts:
  // their callbacks then run in one order on all ranks. A callback may wait for works that it has started itself, whose
  // futures therefore do not wait for it. If it runs long and waits for none of those, it may wait for a later work of
  // the group, whose futures then complete, too.
  void complete_futures(torch_runtime& e);
  std::string where;  // in texts of errors: which ranks of the world those of the group are; constant
  std::mutex mutex;
  std::vector<std::pair<std::int64_t, c10d::CompletionHook>> completion;
  std::vector<std::pair<std::int64_t, c10d::AbortHook>> abort;
  std::shared_ptr<const on_completion_hook> on_completion;  // may take the interpreter's lock
  std::atomic<bool> any{false};                             // completion hooks
  std::atomic<bool> any_on_completion{false};
  std::atomic<int> pending{0};     // works that have not finished
  std::atomic<int> on_devices{0};  // works whose device has not passed them
  std::atomic<bool> told{false};   // a work has failed
  std::vector<std::pair<memory_range, work_ref>> in_use;
  std::atomic<bool> any_in_use{false};
  std::vector<work_ref> with_futures;  // that have not completed, in the order of their starts
  std::uint64_t completing = 0;        // key of the work whose futures complete now
  time_point completing_since{};
  std::vector<work*> running;  // on the loop: collectives that have not ended, for which no thread waits
};

// What an operation needs besides its call. Constant from begin() to the end of the operation.
struct plan {
  std::vector<extend::call> calls;  // started in this order, at once
  std::vector<at::Tensor> keeps;    // keeps their memory alive
  std::vector<std::size_t> in_counts, out_counts;
  std::vector<extend::buffer_view> list;
  // Copies results to their destination; not on the loop. Of a receive it is given the bytes of the message.
  std::function<void(std::size_t received)> after;
};

class work final : public c10d::Work, public base::list_hook<pending_receives> {
 public:
  // `title` is a literal; the profiler shows `profiled`.
  work(torch_runtime& e, int rank, c10d::OpType type, const char* title, std::uint64_t sequence,
       std::chrono::milliseconds timeout, std::shared_ptr<group_hooks> hooks, std::vector<at::Tensor> outputs,
       const std::optional<std::vector<at::Tensor>>& profiled);
  ~work() override;

  // How urgently the calls must progress without a waiting thread: the caller waits at once; it
  // probably waits soon; it computes meanwhile.
  enum class care { waits, later, now };
  // Starts the calls on `world`, which is read on the loop. Throws if it is empty: the group was destroyed.
  void begin(plan p, care c, const communicator& world);
  // Ends the calls; wait() reports their result. The tensors are no longer used when it returns.
  void cancel();
  // Not on the loop; by any thread, any number of times. Runs the last steps; false if another thread does. On a device:
  // those after which the caller may go on.
  bool finish();
  // Not on the loop. Waits until it has finished, and tells no failure.
  void settle();
  // Not on the loop. Calls f() once, after the work has finished, or at once if it has.
  void when_finished(std::function<void()> f);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override { cancel(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  std::chrono::milliseconds getTimeout() const TUTTI_SINCE_TORCH_2_15 { return timeout_; }
  std::uint64_t getCompletionKey() const TUTTI_SINCE_TORCH_2_15 { return key_; }

 private:
  friend struct group_hooks;
  // On a device a work is over once all of it is in streams, and ends later.
  enum phase : int { running, over, finishing, finished };
  task<> perform(std::size_t number);
  task<> perform_on_device(extend::call what);
  task<> follow(gpu::stream after, const request* moving);
  void call_ended(std::exception_ptr failure) noexcept;
  void let_callers_go_on() noexcept;
  void ended(std::exception_ptr failure) noexcept;
  void retire() noexcept;
  const std::exception_ptr& failure() const noexcept;  // once it has finished
  void stop_calls() noexcept;
  void drop_calls() noexcept;
  void wait_for_finish();
  void add_future() noexcept;
  void complete_futures() noexcept;
  void complete_result() noexcept;

  torch_runtime& runtime_;
  plan plan_;
  extend::running_task body_;                       // on the loop: performs the first call
  std::unique_ptr<extend::running_task[]> others_;  // on the loop: the other calls
  std::size_t pending_calls_ = 1;                   // on the loop
  std::size_t calls_to_enqueue_ = 1;                // on the loop, of a device
  work_ref self_;                                   // while it runs
  bool attended_ = false;
  bool limited_ = false;                 // its timeout is not the world's
  const bool nested_;                    // a callback has started it
  bool in_order_ = !nested_;             // its futures complete after those of earlier works
  bool from_self_ = false;               // a message that only this rank could send
  bool uses_ = false;                    // memory of the group's list
  bool follows_ = false;                 // it ends after the group's collectives that were started before
  std::vector<work_ref> followers_;      // on the loop: they end after this one
  std::shared_ptr<device_place> place_;  // null: it runs on the host
  std::optional<c10::Event> end_;        // of a device: follows all of it on the place's stream
  std::atomic<bool> has_ended_{false};
  std::atomic<bool> retired_{false};
  std::atomic<int> phase_{running};
  std::exception_ptr failure_;
  std::exception_ptr late_failure_;  // of a device, after the caller may have gone on
  bool peer_left_ = false;           // the failure: another rank has ended in order
  int source_ = -1;
  std::size_t received_ = 0;  // bytes of a message
  const std::uint64_t sequence_;
  const std::uint64_t key_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<group_hooks> hooks_;
  std::vector<at::Tensor> outputs_;
  const time_point began_ = clock::now();
  time_point ended_{};
  mutable std::mutex futures_;
  std::condition_variable finished_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10::ivalue::Future> result_;
  bool future_completed_ = false;
  bool result_completed_ = false;
  std::vector<std::function<void()>> callbacks_;

 public:
  void set_limited() noexcept { limited_ = true; }
  void set_follows() noexcept { follows_ = true; }
  bool is_nested() const noexcept { return nested_; }
  void set_uses() noexcept { uses_ = true; }
  void set_place(std::shared_ptr<device_place> place) noexcept { place_ = std::move(place); }
  void set_message(bool from_self) noexcept {
    in_order_ = false;
    from_self_ = from_self;
  }
};

// Sets whether this thread runs a callback of a future, and returns what was set before.
bool set_in_callback(bool is) noexcept;
bool is_in_callback() noexcept;
// At most a hundred years, which every clock can add up. PyTorch turns a longer one than its own clock can count, such
// as timedelta.max, into a negative one.
std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) noexcept;
// Throws DistBackendError without a stack trace, because PyTorch takes seconds to make one.
[[noreturn]] void fail(std::string text);
// Translates the failure of an operation of that group into PyTorch's exceptions.
std::exception_ptr translated(std::exception_ptr failure, const group_hooks& group) noexcept;

}  // namespace tutti::python
