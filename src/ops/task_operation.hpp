// SPDX-License-Identifier: Apache-2.0
// task_operation: the operation state of an operation that a coroutine carries out.
#pragma once

#include "core/running_task.hpp"
#include "ops/backend.hpp"

#include <exception>
#include <string>
#include <utility>

namespace tutti::ops {

struct recorded_completion : core::completion {
  flight::handle record{};  // its place in the recording
};

// `State` derives from it. Its report() passes the outcome to the operation. Its leave() takes it out of all
// lists. `Completion` has a `record`.
template <class State, class Completion = recorded_completion>
class task_operation : public Completion {
 public:
  bool ended() const noexcept { return ended_; }
  detail::communicator_state& comm() noexcept { return comm_; }

  // Runs the coroutine that make() returns until it waits. Returns true if the operation is already complete.
  template <class Make>
  bool start(const Make& make) noexcept {
    try {
      body_.start(make(), &body_ended, this);
    } catch (...) {
      body_ended(this, std::current_exception());
    }
    if (ended_) return true;
    waits_ = true;
    const std::uint64_t cycles = comm_.recorder().stays(this->record);
    comm_.engine().begin_wait();
    comm_.watch(*this, operation_.has_deadline(), cycles);
    return false;
  }
  // Returns the operation with the outcome. This has gone.
  detail::operation_state& finish() noexcept {
    detail::operation_state& of = operation_;
    if (!comm_.detached()) comm_.recorder().end(this->record, state_of(this->failure()));
    state().report();
    state().leave();
    of.set_running(nullptr);
    state().~State();
    of.release_device();
    return of;
  }

 protected:
  // `sequence` is for the record.
  template <class... Arguments>
  task_operation(detail::operation_state& s, detail::communicator_state& c, std::uint32_t sequence,
                 Arguments... arguments) noexcept
      : Completion(arguments...), operation_(s), comm_(c) {
    this->record = put_on_record(c, s.what(), sequence);
    this->on_done = [](core::completion& a) noexcept { static_cast<State&>(a).finish().complete(); };
  }
  ~task_operation() = default;

  // Ends the operation before its coroutine does.
  void stop_body(errc why, const std::string& text) noexcept {
    body_.stop();
    if (why == errc::shut_down) operation_.release_device();
    state().leave();
    this->set_failure(why, text);
    comm_.engine().complete(*this);
  }
  void leave() noexcept {
    static_cast<base::list_hook<core::waiting_tag>&>(*this).unlink();
    static_cast<base::list_hook<core::ready_tag>&>(*this).unlink();
    if (waits_) comm_.engine().end_wait();
    waits_ = false;
  }

  detail::operation_state& operation_;
  detail::communicator_state& comm_;
  bool ended_ = false;

 private:
  State& state() noexcept { return static_cast<State&>(*this); }
  static void body_ended(void* self, std::exception_ptr failure) noexcept {
    auto& m = *static_cast<task_operation*>(self);
    m.ended_ = true;
    if (failure) {
      core::thrown what = core::what_of(failure, errc::system);
      m.set_failure(what.code, std::move(what.text));
    }
    if (!m.waits_) return;  // still inside start()
    m.state().leave();
    m.comm_.engine().complete(m);
  }

  core::running_task body_;
  bool waits_ = false;
};

}  // namespace tutti::ops
