// SPDX-License-Identifier: Apache-2.0
// Signals: which ask for the end of a job, their names, and how a program gets back the dispositions that the
// launcher was started with.
#pragma once

#include <csignal>
#include <string>

namespace tutti::launch {

// "SIGSEGV"; "signal 42" if the system has no name for it.
std::string signal_name(int signal);

// As by nohup, or by a shell that starts the launcher in the background.
bool ignored(int signal) noexcept;
// True for signals after which the ranks get their grace period and then SIGKILL. SIGQUIT is not among them:
// the launcher then says who waits for whom, and passes it on only if it cannot.
constexpr bool ends_job(int signal) noexcept {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

// The launcher writes to pipes whose readers may be gone, and to a terminal that it has lent out. One
// instance at a time per process.
class signals_of_writing_ignored {
 public:
  signals_of_writing_ignored() noexcept;
  signals_of_writing_ignored(const signals_of_writing_ignored&) = delete;
  signals_of_writing_ignored& operator=(const signals_of_writing_ignored&) = delete;
  ~signals_of_writing_ignored();  // restores the earlier state
};
// Called in a child between fork and exec, with all signals blocked: undoes signals_of_writing_ignored and
// every handler.
void restore_signals_for_program(const sigset_t& mask) noexcept;

}  // namespace tutti::launch
