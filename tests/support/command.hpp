// SPDX-License-Identifier: Apache-2.0
// Runs programs from a shell, as users do.
#pragma once

#include <sys/wait.h>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace tutti::test {

struct command_result {
  int exit_code = -1;  // 128 + signal if a signal ended it
  std::string output;  // stdout and stderr
  bool says(const std::string& part) const { return output.find(part) != std::string::npos; }
  int times(const std::string& part) const {
    int number = 0;
    for (std::size_t at = 0; (at = output.find(part, at)) != std::string::npos; at += part.size()) ++number;
    return number;
  }
};

// `text` as a single-quoted shell word.
inline std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') word += "'\\'";
    word += c;
  }
  return word + "'";
}

// Runs a shell command under coreutils' timeout, so that a hang becomes a failure with exit code 124.
inline command_result run_shell(const std::string& command, int seconds = 100) {
  command_result result;
  std::FILE* const pipe = ::popen(
      ("timeout -k 5 " + std::to_string(seconds) + " sh -c " + quoted(command) + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no shell");
  std::array<char, 4096> bytes{};
  for (std::size_t got = 0; (got = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;)
    result.output.append(bytes.data(), got);
  const int status = ::pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace tutti::test
