// SPDX-License-Identifier: Apache-2.0
// The operation states of send, receive and probe: the endpoint's transfer state, with the way back to the
// operation.
#pragma once

#include <tutti/detail/operation_state.hpp>

namespace tutti::ops {

// What backend::start does, without the indirection. True: complete already.
bool start_message(detail::operation_state& state);

}  // namespace tutti::ops
