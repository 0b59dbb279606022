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

// backend::start without the indirection. Returns true if already complete.
bool start_message(detail::operation_state& state) noexcept;

}  // namespace tutti::ops
