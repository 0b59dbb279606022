// SPDX-License-Identifier: Apache-2.0
// What the kernel says about a process of this host.
#pragma once

#include <cstdint>

namespace tutti::core {

enum class process_state {
  unknown,  // there is none of this number, or nothing can be read about it
  runs,     // its first thread has a processor, or waits for one
  sleeps,
  stopped,  // by SIGSTOP or SIGTSTP, or by a debugger
  gone      // it has ended, and has not been collected
};

// Of the process that has this number in this process's own numbering. Some microseconds.
process_state state_of_process(std::int64_t pid) noexcept;

}  // namespace tutti::core
