// SPDX-License-Identifier: Apache-2.0
// console_tee: copies standard output and error of this process to files; they also go where they went
// before.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <string>

namespace tutti::track {

// Each stream goes through a `tee` process of its own. It writes the rank's output even after a crash or
// SIGKILL, and nothing in this process has to pass it on. It ends when no writer is left.
class console_tee {
 public:
  // Appends to <stem>.out and <stem>.err. Throws std::runtime_error with the reason: another object has the
  // console of this process, or there is no tee.
  explicit console_tee(const std::filesystem::path& stem);
  console_tee(const console_tee&) = delete;
  console_tee& operator=(const console_tee&) = delete;
  ~console_tee();  // as finish, with no time

  // Restores the streams. Returns true if everything was written to the files by the deadline.
  bool finish(std::chrono::steady_clock::time_point deadline);

 private:
  struct stream {
    int number;
    base::unique_fd before = {};  // the original target of the stream; empty if it is that again
    pid_t tee = -1;
  };
  console_tee();
  static base::unique_fd attach(stream& s, const std::string& file);  // what writes to the tee

  std::array<stream, 2> streams_{{{STDOUT_FILENO}, {STDERR_FILENO}}};
};

}  // namespace tutti::track
