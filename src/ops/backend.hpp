// SPDX-License-Identifier: Apache-2.0
// backend: the functions that carry out the operations of one family. Collectives on device memory are
// collectives whose coroutine tutti::gpu makes; tutti::gpu carries out operations of streams itself. Backends
// enter each call in the flight recorder. task_operation: the state of an operation that a coroutine carries
// out.
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

struct backend {
  // Starts the operation; returns true if it is already complete. Throws tutti::error for what cannot be
  // done.
  bool (*start)(detail::operation_state& state);
  // Asks the operation to end for this reason; it completes as usual. A collective fails its communicator on
  // all ranks; after a timeout it first asks which ranks have not called it.
  void (*stop)(detail::operation_state& state, errc why, const std::string& text) noexcept;
  // Ends the operation without a completion. On return no buffer is referenced. Other ranks of a collective
  // are told.
  void (*abandon)(detail::operation_state& state, void* running) noexcept;
};

extern const backend messages;     // send, receive, probe
extern const backend collectives;  // also those that make communicators
extern const backend repairs;      // shrink
extern const backend streams;      // copies and other operations of one device's stream

// messages.start, without the indirection, of a message on host memory.
bool start_message(detail::operation_state& state) noexcept;

inline const backend& backend_of(const detail::call& what) noexcept {
  static constexpr const backend* by_family[] = {&messages, &collectives, &collectives, &repairs, &streams};
  return *by_family[static_cast<std::size_t>(detail::row_of(what.kind).of)];
}

// The entry of a call. `sequence` of a collective; 0 for a message.
inline flight::operation_facts facts_of(const comm::communicator_state& c, const detail::call& what,
                                        std::uint32_t sequence) noexcept {
  const bool reads = what.kind == detail::operation_kind::send || what.out.data == nullptr;
  return {.kind = static_cast<std::uint8_t>(what.kind),
          .communicator = c.id(),
          .sequence = sequence,
          .peer = what.peer,
          .tag = what.tag,
          .bytes = reads ? what.in.bytes() : what.out.bytes(),
          .file = what.where.file_name(),
          .line = what.where.line()};
}
inline flight::handle put_on_record(comm::communicator_state& c, const detail::call& what,
                                    std::uint32_t sequence) noexcept {
  return c.recorder().begin(facts_of(c, what, sequence));
}

inline flight::state state_of(errc failure) noexcept {
  return failure == errc::success     ? flight::state::done
         : failure == errc::cancelled ? flight::state::cancelled
                                      : flight::state::failed;
}

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
