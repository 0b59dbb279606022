// SPDX-License-Identifier: Apache-2.0
// The operation state of a collective: from the operation to the coroutine that carries it out, and its end
// on every path.
#pragma once

#include <string>
#include <tutti/detail/operation_state.hpp>

namespace tutti::coll {

// True: complete already. Throws tutti::error for an algorithm that does not fit.
bool start_collective(detail::operation_state& state);
// Its communicator fails for this reason, on all ranks; of a timeout, after asking who has not called it.
void stop_collective(detail::operation_state& state, errc why, const std::string& text) noexcept;
// The same with errc::cancelled, without a completion; on return no buffer is referenced.
void abandon_collective(detail::operation_state& state, void* running) noexcept;

}  // namespace tutti::coll
