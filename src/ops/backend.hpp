// SPDX-License-Identifier: Apache-2.0
// backend: the functions that carry out the operations of one family. Collectives on device memory are
// collectives whose coroutine tutti::gpu makes; tutti::gpu carries out operations of streams itself. Backends
// enter each call in the flight recorder.
#pragma once

#include "comm/communicator_state.hpp"
#include "flight/recorder.hpp"
#include "p2p/transfer_states.hpp"

#include <cstddef>
#include <string>
#include <tutti/detail/flow.hpp>
#include <tutti/detail/operation_state.hpp>

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
  flight::operation_facts facts;
  facts.kind = static_cast<std::uint8_t>(what.kind);
  facts.communicator = c.id();
  facts.sequence = sequence;
  facts.peer = what.peer;
  facts.tag = what.tag;
  facts.bytes = what.kind == detail::operation_kind::send || what.out.data == nullptr ? what.in.bytes()
                                                                                      : what.out.bytes();
  facts.file = what.where.file_name();
  facts.line = what.where.line();
  return facts;
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

}  // namespace tutti::ops
