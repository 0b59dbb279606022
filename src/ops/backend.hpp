// SPDX-License-Identifier: Apache-2.0
// backend: the functions that carry out the operations of one family. Collectives on device memory are
// collectives whose coroutine tutti::gpu makes; tutti::gpu carries out operations of streams itself.
#pragma once

#include <string>
#include <tutti/detail/operation_state.hpp>

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

extern const backend messages;         // send, receive, probe
extern const backend device_messages;  // the same on device memory
extern const backend collectives;      // also those that make communicators
extern const backend repairs;          // shrink
extern const backend streams;          // copies and other operations of one device's stream

inline const backend& backend_of(const detail::call& what) noexcept {
  static constexpr const backend* by_family[] = {&messages, &collectives, &collectives, &repairs, &streams};
  const detail::family of = detail::row_of(what.kind).of;
  if (of == detail::family::message && what.on_device()) return device_messages;
  return *by_family[static_cast<std::size_t>(of)];
}

}  // namespace tutti::ops
