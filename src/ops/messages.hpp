// SPDX-License-Identifier: Apache-2.0
// The operation states of send, receive and probe: the endpoint's transfer state plus the way back to the
// operation.
#pragma once

#include "comm/communicator_state.hpp"

#include <string>
#include <tutti/detail/operation_state.hpp>

namespace tutti::ops {

// What stands behind the text of a message that has timed out: what came in its place.
std::string why_nothing_came(const comm::communicator_state& c, const detail::call& what);

// Ends the state `m` of a message whose communicator has failed, or that has taken longer than its timeout.
template <class State>
void expire(State& m, const detail::call& what) noexcept {
  const comm::communicator_state& c = *what.comm;
  if (c.failed()) return m.end(c.failure(), c.failure_text());
  c.report_hang();
  m.end(errc::timed_out, c.timeout_text() + why_nothing_came(c, what));
}

// backend::start without the indirection. Returns true if already complete.
bool start_message(detail::operation_state& state) noexcept;

}  // namespace tutti::ops
