// SPDX-License-Identifier: Apache-2.0
#include "launch/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

namespace tutti::launch {
namespace {

constexpr int usual_columns = 80;

}  // namespace

bool has_terminal_input() noexcept { return ::isatty(STDIN_FILENO) == 1; }
bool in_terminal_foreground() noexcept {
  return has_terminal_input() && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}
void give_terminal_to(pid_t group) noexcept { ::tcsetpgrp(STDIN_FILENO, group); }
void take_terminal_back_from(pid_t group) noexcept {
  if (::tcgetpgrp(STDIN_FILENO) == group) ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
}

int output_terminal_columns() noexcept {
  if (::isatty(STDOUT_FILENO) != 1) return 0;
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual_columns;
}

}  // namespace tutti::launch
