// SPDX-License-Identifier: Apache-2.0
// TUTTI_TRACE=FILE: ranks that tutti-run has not started write the time line of their process themselves, by
// a thread that nobody waits for but the end of the process.
#pragma once

#include "flight/layout.hpp"

namespace tutti::flight {

// Whether TUTTI_TRACE asks for it; starts the thread when it does.
bool trace_this_process();
// The recording goes: its last operations are written. The caller holds what for_each_recording holds.
void write_last(const recording_view& of) noexcept;

}  // namespace tutti::flight
