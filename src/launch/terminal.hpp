// SPDX-License-Identifier: Apache-2.0
// The terminal on standard input, which a single rank gets as a job gets it from a shell: debuggers, prompts
// and Ctrl-C work in it as without the launcher.
#pragma once

#include <sys/types.h>

namespace tutti::launch {

bool has_terminal_input() noexcept;
// Whether standard input is a terminal, and this process group may read from it.
bool in_terminal_foreground() noexcept;
// Makes `group` the one that may. SIGTTOU must be ignored or blocked.
void give_terminal_to(pid_t group) noexcept;
// Undoes it. Does nothing if another process, such as the shell, has already taken the terminal from `group`.
void take_terminal_back_from(pid_t group) noexcept;

// Columns of the terminal on standard output; 0: it is none.
int output_terminal_columns() noexcept;

}  // namespace tutti::launch
