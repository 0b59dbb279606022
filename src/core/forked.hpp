// SPDX-License-Identifier: Apache-2.0
// Children that a rank forks: what is the rank's is not theirs.
#pragma once

namespace tutti::core {

// Whether this process was forked by one that had a loop. It may have loops of its own since; those of its
// parent are on no thread of it, and end it when it comes back to them.
bool forked_by_a_rank() noexcept;

// Number of forks of processes with a loop between the first process and this one: differs from what it was when an
// object was made if the object is the parent's.
unsigned fork_generation() noexcept;

// What a call from the wrong thread is told: "called outside …", with the cure; in a forked child, that.
const char* wrong_thread_text() noexcept;

}  // namespace tutti::core
