// SPDX-License-Identifier: Apache-2.0
// Who carries operations out: the calls of one family each. Collectives on memory of devices are collectives,
// whose coroutine is made by tutti::gpu; it carries out those of streams itself.
#pragma once

#include <string>
#include <tutti/detail/operation_state.hpp>

namespace tutti::ops {

struct backend {
  // True: complete already. Throws tutti::error for what cannot be done.
  bool (*start)(detail::operation_state& state);
  // Asks for an end for this reason; it completes as usual. A collective fails its communicator on all
  // ranks: of a timeout, after asking who has not called it.
  void (*stop)(detail::operation_state& state, errc why, const std::string& text) noexcept;
  // Ends it without a completion; on return no buffer is referenced. Other ranks of a collective are told.
  void (*abandon)(detail::operation_state& state, void* running) noexcept;
};

extern const backend messages;         // send, receive, probe
extern const backend device_messages;  // the same of memory of devices
extern const backend collectives;      // and what makes communicators
extern const backend repairs;          // shrink
extern const backend streams;          // copies, and what else is of one device's stream

inline const backend& backend_of(const detail::call& what) noexcept {
  static constexpr const backend* by_family[] = {&messages, &collectives, &collectives, &repairs, &streams};
  const detail::family of = detail::row_of(what.kind).of;
  if (of == detail::family::message && what.on_device()) return device_messages;
  return *by_family[static_cast<std::size_t>(of)];
}

}  // namespace tutti::ops
