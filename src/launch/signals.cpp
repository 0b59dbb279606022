// SPDX-License-Identifier: Apache-2.0
#include "launch/signals.hpp"

#include <string.h>  // sigabbrev_np

namespace tutti::launch {
namespace {

constexpr int of_writing[] = {SIGPIPE, SIGTTOU, SIGXFSZ};
struct sigaction earlier[std::size(of_writing)];

void restore_signals_of_writing() noexcept {
  for (std::size_t i = 0; i < std::size(of_writing); ++i) ::sigaction(of_writing[i], &earlier[i], nullptr);
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

bool ignored(int signal) noexcept {
  struct sigaction now{};
  return ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
         now.sa_handler == SIG_IGN;
}

signals_of_writing_ignored::signals_of_writing_ignored() noexcept {
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  for (std::size_t i = 0; i < std::size(of_writing); ++i) ::sigaction(of_writing[i], &ignore, &earlier[i]);
}

signals_of_writing_ignored::~signals_of_writing_ignored() { restore_signals_of_writing(); }

void restore_signals_for_program(const sigset_t& mask) noexcept {
  restore_signals_of_writing();
  // exec itself resets handlers, but a signal that is unblocked before it must not run one here: the handler
  // writes to a pipe that the launcher reads.
  struct sigaction by_default{};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    struct sigaction now{};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN)
      ::sigaction(signal, &by_default, nullptr);
  }
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace tutti::launch
