// SPDX-License-Identifier: Apache-2.0
// TUTTI_TRACE=FILE: ranks not started by tutti-run write the time line of their process themselves, by a
// thread that only the end of the process waits for.
#pragma once

#include "flight/layout.hpp"

namespace tutti::flight {

// Whether TUTTI_TRACE requests it; if so, starts the thread.
bool trace_this_process();
// Writes the last operations of a recording that is going away. The caller holds the lock of
// for_each_recording.
void write_last(const recording_view& of) noexcept;

}  // namespace tutti::flight
