// SPDX-License-Identifier: Apache-2.0
// Children that a rank forks: they must not use what belongs to the rank.
#pragma once

namespace tutti::core {

// Whether a process with a loop forked this one. This process may have made loops of its own since. Its
// parent's loops run on none of its threads, and end the process when it returns to them.
bool forked_by_a_rank() noexcept;

// Number of forks, by processes with a loop, between the first process and this one. An object whose number
// differs belongs to a parent.
unsigned fork_generation() noexcept;

// The text for a call from the wrong thread: "called outside …", with the cure. In a forked child it says
// that.
const char* wrong_thread_text() noexcept;

}  // namespace tutti::core
