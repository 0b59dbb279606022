// SPDX-License-Identifier: Apache-2.0
// The operation states of send, receive and probe: the endpoint's transfer state, with the way back to the
// operation.
#pragma once

#include <string>
#include <tutti/detail/operation_state.hpp>

namespace tutti::coll {

bool start_message(detail::operation_state& state);  // true: complete already
// Asks for a cancellation for this reason; the completion comes as usual.
void stop_message(detail::operation_state& state, errc why, const std::string& text) noexcept;
// Ends it without a completion; on return no buffer is referenced.
void abandon_message(detail::operation_state& state, void* running) noexcept;

}  // namespace tutti::coll
