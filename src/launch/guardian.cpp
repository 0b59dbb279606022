// SPDX-License-Identifier: Apache-2.0
#include "launch/guardian.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <system_error>
#include <vector>

#include "base/files.hpp"

namespace tutti::launch {
namespace {

// The protocol: one pid_t per message, in a single write that a pipe keeps whole. A positive number is a
// group to watch, a negative one a group to forget. The end of the pipe is the end of the launcher.

void close_all_but(int fd) {
  if (fd > 0) ::close_range(0, static_cast<unsigned>(fd) - 1, 0);
  ::close_range(static_cast<unsigned>(fd) + 1, UINT_MAX, 0);
}

[[noreturn]] void guard(int pipe) {
  ::prctl(PR_SET_NAME, "tutti-guardian");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  // If held open, the launcher's standard output would keep $(tutti-run ...) waiting, and its directory a
  // mount busy.
  close_all_but(pipe);
  [[maybe_unused]] const int ignored = ::chdir("/");

  std::vector<pid_t> groups;
  for (;;) {
    std::array<pid_t, 256> messages;
    const ssize_t bytes = ::read(pipe, messages.data(), sizeof messages);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    for (std::size_t i = 0; i < static_cast<std::size_t>(bytes) / sizeof(pid_t); ++i) {
      if (messages[i] > 0)
        groups.push_back(messages[i]);
      else
        std::erase(groups, -messages[i]);
    }
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  ::_exit(0);
}

}  // namespace

guardian::guardian() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  base::unique_fd reader(ends[0]);
  pipe_.reset(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) {
    pipe_.reset();
    guard(reader.get());
  }
  // Signals for the launcher's process group or terminal do not reach the guardian from here on.
  ::setpgid(pid_, pid_);
}

guardian::~guardian() {
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void guardian::watch(pid_t group) const noexcept { tell(group); }
void guardian::forget(pid_t group) const noexcept { tell(-group); }

void guardian::tell(pid_t message) const noexcept {
  // The death of the guardian is no reason to end the job: the ranks still have their PDEATHSIG.
  base::write_all(pipe_.get(), {reinterpret_cast<const char*>(&message), sizeof message});
}

}  // namespace tutti::launch
