// SPDX-License-Identifier: Apache-2.0
// A forked process that runs code of the test, for what happens between processes.
#pragma once

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <utility>

namespace tutti::test {

// A process that runs `body` and ends with its result. Killed if the test ends first. The body may report its
// progress.
class child {
 public:
  using function = std::function<int(std::function<void()> came_so_far)>;
  explicit child(const function& body) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    heard_.reset(ends[0]);
    base::unique_fd tell(ends[1]);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("no process");
    if (pid_ == 0) {
      int code = 99;
      try {
        code = body([&tell] { static_cast<void>(!::write(tell.get(), "x", 1)); });
      } catch (const std::exception& e) {
        std::fprintf(stderr, "child: %s\n", e.what());
      }
      ::_exit(code);
    }
  }
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child() {
    if (pid_ > 0) end(SIGKILL);
  }
  void wait_until_it_came_so_far() const {
    pollfd p{heard_.get(), POLLIN, 0};
    char byte = 0;
    if (::poll(&p, 1, 60'000) != 1 || ::read(heard_.get(), &byte, 1) != 1)
      throw std::runtime_error("the child has not come so far");
  }
  pid_t pid() const noexcept { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  // Stops the process, and returns when it is stopped.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    if (::waitpid(pid_, &status, WUNTRACED) != pid_ || !WIFSTOPPED(status))
      throw std::runtime_error("the child ended before it was stopped");
  }
  // Waits for the end. Returns the exit code, or 128 + the signal.
  int end(int with_signal = 0) {
    if (with_signal != 0) ::kill(pid_, with_signal);
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  base::unique_fd heard_;
  pid_t pid_ = -1;
};

}  // namespace tutti::test
