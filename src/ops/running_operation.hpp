// SPDX-License-Identifier: Apache-2.0
// running_operation: what carries out an operation, from its start to its end; the functions that make one enter
// the call in the flight recorder. task_operation: one that a coroutine carries out. Collectives on device memory
// are collectives whose coroutine tutti::gpu makes; tutti::gpu carries out operations of streams itself.
#pragma once

#include "comm/communicator_state.hpp"
#include "core/running_task.hpp"
#include "flight/recorder.hpp"
#include "p2p/transfer_states.hpp"

#include <cstddef>
#include <exception>
#include <string>
#include <tutti/detail/flow.hpp>
#include <tutti/detail/operation_state.hpp>
#include <utility>

namespace tutti::detail {

// What prepare() finds out about a call once, and the operations made from it reuse.
struct prepared_call {
  explicit prepared_call(const call& c) noexcept : what(c) {}
  static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
  static void operator delete(void* made, std::size_t bytes) noexcept { release_frame(made, bytes); }

  call what;  // each operation is a copy of it
  // Of a collective:
  p2p::fingerprint print{};
  algorithm with = algorithm::automatic;
  bool in_use = false;   // by an operation that has not ended, including prepare itself
  bool dropped = false;  // its handle has gone: that operation frees it
};

}  // namespace tutti::detail

namespace tutti::ops {

// Lies in the storage of its operation's state.
class running_operation {
 public:
  running_operation(const running_operation&) = delete;
  running_operation& operator=(const running_operation&) = delete;
  // Asks the operation to end for this reason; it completes as usual. A collective fails its communicator on
  // all ranks; after a timeout it first asks which ranks have not called it.
  virtual void stop(errc why, const std::string& text) noexcept = 0;
  // Ends the operation without a completion, and destroys this. On return no buffer is referenced. Other ranks
  // of a collective are told.
  virtual void abandon() noexcept = 0;

 protected:
  explicit running_operation(detail::operation_state& s) noexcept : operation_(s) { s.set_running(this); }
  ~running_operation() { operation_.set_running(nullptr); }
  detail::communicator_state& comm() const noexcept { return *operation_.what().comm; }
  detail::operation_state& operation_;
};

// Starts an operation of this family; returns true if it is already complete. Throws tutti::error for what cannot be
// done. The layer that carries a family out defines its function: nothing here names a layer above.
template <detail::family>
bool start(detail::operation_state& state);
template <>
bool start<detail::family::message>(detail::operation_state& state);
template <>
bool start<detail::family::collective>(detail::operation_state& state);  // also of the family set_up
template <>
bool start<detail::family::repair>(detail::operation_state& state);
template <>
bool start<detail::family::one_sided>(detail::operation_state& state);
// Of a message on host memory.
bool start_message(detail::operation_state& state) noexcept;

// The entry of a call. `sequence` of a collective; 0 for a message.
inline flight::operation_facts facts_of(const comm::communicator_state& c, const detail::call& what,
                                        std::uint32_t sequence) noexcept {
  const bool reads = what.kind == detail::operation_kind::send || what.out.data == nullptr;
  return {.kind = static_cast<std::uint8_t>(what.kind),
          .communicator = c.numbers().id,
          .sequence = sequence,
          .peer = what.peer,
          .tag = what.tag,
          .bytes = reads ? what.in.bytes() : what.out.bytes(),
          .file = what.where.file_name(),
          .line = what.where.line()};
}

inline flight::state state_of(errc failure) noexcept {
  return failure == errc::success     ? flight::state::done
         : failure == errc::cancelled ? flight::state::cancelled
                                      : flight::state::failed;
}

// `State` derives from it. Its report() passes the outcome to the operation. Its leave() takes it out of all
// lists. `Completion` has a `record`.
template <class State, class Completion, class Running = running_operation>
class task_operation : public Completion, public Running {
 public:
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
    const std::uint64_t cycles = this->comm().recorder().stays(this->record);
    this->comm().loop().engine().begin_wait();
    this->comm().pending().watch(*this, this->operation_.has_deadline(), cycles);
    return false;
  }
  // Returns the operation with the outcome. This has gone.
  detail::operation_state& finish() noexcept {
    detail::operation_state& of = this->operation_;
    if (!this->comm().detached()) this->comm().recorder().end(this->record, state_of(this->failure()));
    state().report();
    state().leave();
    state().~State();
    of.release_device();
    return of;
  }

 protected:
  // `sequence` is for the record.
  template <class... Arguments>
  task_operation(detail::operation_state& s, std::uint32_t sequence, Arguments... arguments) noexcept
      : Completion(arguments...), Running(s) {
    this->record = this->comm().recorder().begin(facts_of(this->comm(), s.what(), sequence));
    this->on_done = [](core::completion& a) noexcept { static_cast<State&>(a).finish().complete(); };
  }
  ~task_operation() = default;

  // Ends the operation before its coroutine does.
  void stop_body(errc why, const std::string& text) noexcept {
    body_.stop();
    if (why == errc::shut_down) this->operation_.release_device();
    state().leave();
    this->set_failure(why, text);
    this->comm().loop().engine().complete(*this);
  }
  void leave() noexcept {
    static_cast<base::list_hook<core::waiting_tag>&>(*this).unlink();
    static_cast<base::list_hook<core::ready_tag>&>(*this).unlink();
    if (waits_) this->comm().loop().engine().end_wait();
    waits_ = false;
  }

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
    m.comm().loop().engine().complete(m);
  }

  core::running_task body_;
  bool waits_ = false;
};

}  // namespace tutti::ops
