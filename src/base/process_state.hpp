// SPDX-License-Identifier: Apache-2.0
// What the kernel says about a process of this host, or a thread of one.
#pragma once

#include <cstdint>

namespace tutti::base {

enum class process_state : std::uint8_t {
  unknown,  // nothing can be read about it
  runs,     // it (of a process: its first thread) has a processor, or waits for one
  sleeps,
  stopped,  // by SIGSTOP or SIGTSTP, or by a debugger
  gone      // there is none of this number, or it waits to be reaped
};

// Takes numbers of this process's own pid namespace. Costs some microseconds. A thread is `gone` with its
// process, however long ago that ended.
process_state state_of_process(std::int64_t pid) noexcept;
process_state state_of_thread(std::int64_t pid, std::int64_t tid) noexcept;

// When it started, in ticks since the boot: two processes that follow each other under one number differ. 0:
// there is no such process, or it has ended and was not reaped.
std::uint64_t start_of_process(std::int64_t pid);
// 0: none, or it cannot be read.
std::int64_t parent_of_process(std::int64_t pid);

// The number of this process's namespace of a kind ("net", "pid"), among those of this kernel; 0: not known.
std::uint64_t namespace_of(const char* kind) noexcept;

}  // namespace tutti::base
