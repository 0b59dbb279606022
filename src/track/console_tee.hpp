// SPDX-License-Identifier: Apache-2.0
// console_tee: copies standard output and error of this process to files; they also go where they went
// before.
#pragma once

#include "base/text.hpp"
#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

namespace tutti::track {

// Each stream goes through a `tee` process of its own. It writes the rank's output even after a crash or
// SIGKILL, and nothing in this process has to pass it on. It ends when no writer is left.
class console_tee {
 public:
  // Appends to <stem>.out and <stem>.err. Throws std::runtime_error with the reason: another object has the
  // console of this process, or there is no tee.
  explicit console_tee(const std::filesystem::path& stem) : console_tee() {
    // Both before either stream changes: the second tee also writes to the original stream.
    const std::array inputs{attach(streams_[0], stem.string() + ".out"),
                            attach(streams_[1], stem.string() + ".err")};
    // A terminal's lines come one by one; a pipe's would wait for a full buffer.
    if (::isatty(STDOUT_FILENO) == 1) std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    std::fflush(stdout);
    for (std::size_t i = 0; i < 2; ++i) ::dup2(inputs[i].get(), streams_[i].number);
  }
  console_tee(const console_tee&) = delete;
  console_tee& operator=(const console_tee&) = delete;
  ~console_tee() {
    finish(std::chrono::steady_clock::now());
    taken_ = false;
  }

  // Restores the streams. Returns true if everything was written to the files by the deadline.
  bool finish(std::chrono::steady_clock::time_point deadline) {
    for (stream& s : streams_) {
      if (!s.before) continue;
      if (s.number == STDOUT_FILENO) std::fflush(stdout);
      ::dup2(s.before.get(), s.number);
      s.before.reset();
    }
    for (stream& s : streams_)
      if (s.tee >= 0 && wait_for(s.tee, deadline)) s.tee = -1;
    return streams_[0].tee < 0 && streams_[1].tee < 0;
  }

 private:
  struct stream {
    int number;
    base::unique_fd before = {};  // the original target of the stream; empty if it is that again
    pid_t tee = -1;
  };
  console_tee() {
    if (taken_.exchange(true)) throw std::runtime_error("another rank of this process has its console");
  }
  // Returns what writes to the tee.
  static base::unique_fd attach(stream& s, const std::string& file) {
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
  // Waits for the end of a child; false at the deadline.
  static bool wait_for(pid_t child, std::chrono::steady_clock::time_point deadline) {
    for (;;) {
      const pid_t got = ::waitpid(child, nullptr, WNOHANG);
      if (got == child || (got < 0 && errno == ECHILD)) return true;
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a tee ends at once when its writers have
    }
  }

  static inline std::atomic<bool> taken_ = false;  // by a tee of this process
  std::array<stream, 2> streams_{{{STDOUT_FILENO}, {STDERR_FILENO}}};
};

}  // namespace tutti::track
