// SPDX-License-Identifier: Apache-2.0
// Children that a rank forks: they must not use what belongs to the rank.
#pragma once

namespace tutti::core {

// Number of forks, by processes with a loop, between the first process and this one. An object whose number
// differs belongs to a parent, whose loops run on no thread of this process, and end it when it returns to them.
unsigned fork_generation() noexcept;

// The text for a call from the wrong thread: "called outside …", with the cure. In a forked child it says
// that.
const char* wrong_thread_text() noexcept;

}  // namespace tutti::core
