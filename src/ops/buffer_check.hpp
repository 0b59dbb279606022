// SPDX-License-Identifier: Apache-2.0
// Two operations in flight on overlapping buffers, one of which writes: the error of programs that
// communicate while they compute, and the one that no result shows at once. Found when the second starts.
//
// TUTTI_CHECK_BUFFERS=error refuses the second, =warn says so on stderr, =off does not look. Unless that is
// set, libraries built without NDEBUG warn and others do not look. Costs a look at all buffers in flight on
// this thread for every operation that starts.
#pragma once

#include <string>
#include <tutti/detail/operation_state.hpp>

namespace tutti::ops {

enum class buffer_checks { off, warn, error };
buffer_checks checks_of_buffers();
// What overlaps, naming both calls and their places in the program; empty when nothing does.
std::string overlap_of(const detail::operation_state& state);
// On stderr, the first few of a process.
void warn_of_overlap(const std::string& text);
// The operation is in flight from now on.
void record_buffers(const detail::operation_state& state);
void forget_buffers(const detail::operation_state& state) noexcept;

}  // namespace tutti::ops
