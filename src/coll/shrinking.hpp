// SPDX-License-Identifier: Apache-2.0
// The operation state of shrink: from the operation to the agreement on who goes on, and to their
// communicator.
#pragma once

#include <string>
#include <tutti/detail/operation_state.hpp>

namespace tutti::coll {

bool start_shrink(detail::operation_state& state);  // true: complete already
// Asks for a cancellation for this reason; the completion comes as usual.
void stop_shrink(detail::operation_state& state, errc why, const std::string& text) noexcept;
// Ends it without a completion. The others are told.
void abandon_shrink(detail::operation_state& state, void* running) noexcept;

}  // namespace tutti::coll
