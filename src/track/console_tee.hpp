// SPDX-License-Identifier: Apache-2.0
// console_tee: copies standard output and error of this process to files; they also go where they went
// before.
#pragma once

#include "base/files.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
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

  // Restores the streams. Returns true if all that this process has written to them is in the files by the deadline.
  bool finish(std::chrono::steady_clock::time_point deadline) {
    for (stream& s : streams_) {
      if (!s.before) continue;
      if (s.number == STDOUT_FILENO) std::fflush(stdout);
      s.input.reset(::fcntl(s.number, F_DUPFD_CLOEXEC, 3));
      ::dup2(s.before.get(), s.number);
      s.before.reset();
    }
    bool all = true;
    for (stream& s : streams_) all = written(s, deadline) && all;
    return all;
  }
  // After finish(): whether something that this process has started still writes to the streams.
  bool in_use() const noexcept { return streams_[0].tee >= 0 || streams_[1].tee >= 0; }

 private:
  struct stream {
    int number;
    base::unique_fd before = {};  // the original target of the stream; empty if it is that again
    base::unique_fd input = {};   // while finish() waits: of the tee
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
  using time_point = std::chrono::steady_clock::time_point;

  // Waits for the end of the tee, or until it waits for more input: others may hold that open for long.
  static bool written(stream& s, time_point deadline) {
    constexpr std::chrono::milliseconds to_end{50};  // a tee ends at once when its writers have
    constexpr int most_empty = 100;
    int empty = 0;
    const bool all = poll(
        [&] {
          if (ended(s) || waits_for_input(s)) return true;
          // What this tee does cannot be told: this process must not be the one that holds its input open.
          if (is_empty(s) && ++empty > most_empty) s.input.reset();
          return false;
        },
        deadline);
    s.input.reset();
    const bool over =
        poll([&] { return ended(s); }, all ? std::chrono::steady_clock::now() + to_end : deadline);
    return all || over;
  }
  static bool ended(stream& s) {
    if (s.tee < 0) return true;
    const pid_t got = ::waitpid(s.tee, nullptr, WNOHANG);
    if (got == s.tee || (got < 0 && errno == ECHILD)) s.tee = -1;
    return s.tee < 0;
  }
  static bool is_empty(const stream& s) {
    int bytes = 0;
    return ::ioctl(s.input.get(), FIONREAD, &bytes) == 0 && bytes == 0;
  }
  // Whether the pipe was empty before the tee came back to it. Its system call is "0 0x0 ..." then: read, descriptor 0.
  static bool waits_for_input(const stream& s) {
    return is_empty(s) && base::contents_of("/proc/" + std::to_string(s.tee) + "/syscall")
                              .starts_with(std::to_string(SYS_read) + " 0x0 ");
  }
  template <class F>
  static bool poll(F done, time_point deadline) {
    while (!done()) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  static inline std::atomic<bool> taken_ = false;  // by a tee of this process
  std::array<stream, 2> streams_{{{STDOUT_FILENO}, {STDERR_FILENO}}};
};

}  // namespace tutti::track
