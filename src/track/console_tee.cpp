// SPDX-License-Identifier: Apache-2.0
#include "track/console_tee.hpp"

#include "base/text.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <stdexcept>

namespace tutti::track {
namespace {

std::atomic<bool> taken = false;  // by a tee of this process

// Waits for the end of a child; false at the deadline.
bool wait_for(pid_t child, std::chrono::steady_clock::time_point deadline) {
  const base::unique_fd end(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  for (;;) {
    const pid_t got = ::waitpid(child, nullptr, WNOHANG);
    if (got == child || (got < 0 && errno == ECHILD)) return true;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    // Without a descriptor to wait for (old kernels), polls.
    pollfd p{end.get(), POLLIN, 0};
    ::poll(end ? &p : nullptr, end ? 1 : 0, static_cast<int>(end ? left : 1));
  }
}

}  // namespace

base::unique_fd console_tee::attach(stream& s, const std::string& file) {
  int ends[2];
  s.before.reset(::fcntl(s.number, F_DUPFD_CLOEXEC, 3));
  if (!s.before || ::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(base::errno_text(errno));
  const base::unique_fd output(ends[0]);
  base::unique_fd input(ends[1]);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, output.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, s.before.get(), STDOUT_FILENO);
  // A group of its own: what ends the rank must not end the process that writes its last lines.
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  // If the reader of the stream has gone, the file still gets its part; if the file may not grow, the reader
  // does.
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGPIPE);
  ::sigaddset(&blocked, SIGXFSZ);
  ::posix_spawnattr_setsigmask(&attributes, &blocked);
  std::string name = "tee", append = "-a", path = file;
  char* const words[] = {name.data(), append.data(), path.data(), nullptr};
  const int code = ::posix_spawnp(&s.tee, "tee", &actions, &attributes, words, environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (code != 0) {
    s.tee = -1;
    throw std::runtime_error("tee: " + base::errno_text(code));
  }
  return input;
}

console_tee::console_tee() {
  if (taken.exchange(true)) throw std::runtime_error("another rank of this process has its console");
}

console_tee::console_tee(const std::filesystem::path& stem) : console_tee() {
  // Both before either stream changes: the second tee also writes to the original stream.
  const std::array inputs{attach(streams_[0], stem.string() + ".out"),
                          attach(streams_[1], stem.string() + ".err")};
  // A terminal's lines come one by one; a pipe's would wait for a full buffer.
  if (::isatty(STDOUT_FILENO) == 1) std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::fflush(stdout);
  for (std::size_t i = 0; i < 2; ++i) ::dup2(inputs[i].get(), streams_[i].number);
}

bool console_tee::finish(std::chrono::steady_clock::time_point deadline) {
  for (stream& s : streams_) {
    if (!s.before) continue;
    if (s.number == STDOUT_FILENO) std::fflush(stdout);
    ::dup2(s.before.get(), s.number);
    s.before.reset();
  }
  bool all = true;
  for (stream& s : streams_) {
    if (s.tee < 0) continue;
    const bool ended = wait_for(s.tee, deadline);
    if (ended) s.tee = -1;
    all = all && ended;
  }
  return all;
}

console_tee::~console_tee() {
  finish(std::chrono::steady_clock::now());
  taken = false;
}

}  // namespace tutti::track
