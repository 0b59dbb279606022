// SPDX-License-Identifier: Apache-2.0
// The operation states of send, receive and probe: the endpoint's transfer state plus the way back to the
// operation.
#pragma once

#include <tutti/detail/operation_state.hpp>

namespace tutti::ops {

// backend::start without the indirection. Returns true if already complete.
bool start_message(detail::operation_state& state);

}  // namespace tutti::ops
