// SPDX-License-Identifier: Apache-2.0
// Standard output and error of this process, to where they went before and to files as well.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace tutti::track {

// Each stream goes through a `tee` of its own, a process: it writes what the rank has said also after a crash
// or a SIGKILL, down to the last word, and nothing in this process has to pass it on. It ends when no writer
// is left.
class console_tee {
 public:
  // Appends to <stem>.out and <stem>.err. Null, and `why`: another has the console of this process, or there
  // is no tee.
  static std::unique_ptr<console_tee> start(const std::filesystem::path& stem, std::string& why);
  console_tee(const console_tee&) = delete;
  console_tee& operator=(const console_tee&) = delete;
  ~console_tee();  // as finish, with no time

  // Gives the streams back. True: everything is in the files, or written by the deadline.
  bool finish(std::chrono::steady_clock::time_point deadline);

 private:
  struct stream {
    int number = -1;
    base::unique_fd before;  // what the number meant
    pid_t tee = -1;
  };
  console_tee() = default;
  static bool attach(stream& s, int number, const std::string& file, base::unique_fd& input,
                     std::string& why);
  void give_back() noexcept;

  std::array<stream, 2> streams_;
};

}  // namespace tutti::track
