// SPDX-License-Identifier: Apache-2.0
// Finds two operations in flight on overlapping buffers, one of which writes. Programs that communicate while
// they compute make this error, and results do not show it at once. It is found when the second operation
// starts.
//
// TUTTI_CHECK_BUFFERS=error rejects the second, =warn reports it on stderr, =off disables the check. By
// default, libraries built without NDEBUG warn and others do not check.
// Cost: for every operation that starts, a comparison with all buffers in flight on this loop.
#pragma once

#include <string>
#include <tutti/detail/operation_state.hpp>

namespace tutti::ops {

enum class buffer_checks { off, warn, error };
buffer_checks checks_of_buffers();
// Records that the operation is in flight. Returns why it must not start; empty if it may.
std::string record_buffers(const detail::operation_state& state);
void forget_buffers(const detail::operation_state& state) noexcept;

}  // namespace tutti::ops
