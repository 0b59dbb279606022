// SPDX-License-Identifier: Apache-2.0
// The terminal on standard input, which a single rank gets as a job gets it from a shell: debuggers, prompts
// and Ctrl-C work in it as without the launcher.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

namespace tutti::launch {

inline bool has_terminal_input() noexcept { return ::isatty(STDIN_FILENO) == 1; }
// Whether standard input is a terminal, and this process group may read from it.
inline bool in_terminal_foreground() noexcept {
  return has_terminal_input() && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}
// Makes `group` the one that may. SIGTTOU must be ignored or blocked.
inline void give_terminal_to(pid_t group) noexcept { ::tcsetpgrp(STDIN_FILENO, group); }
// Undoes it. Does nothing if another process, such as the shell, has already taken the terminal from `group`.
inline void take_terminal_back_from(pid_t group) noexcept {
  if (::tcgetpgrp(STDIN_FILENO) == group) ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
}

// Columns of the terminal on standard output; 0: it is none.
inline int output_terminal_columns() noexcept {
  constexpr int usual_columns = 80;
  if (::isatty(STDOUT_FILENO) != 1) return 0;
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual_columns;
}

}  // namespace tutti::launch
