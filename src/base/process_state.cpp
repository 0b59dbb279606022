// SPDX-License-Identifier: Apache-2.0
#include "base/process_state.hpp"

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

namespace tutti::base {
namespace {

// Parses "77 (name) S ..."; the name may contain anything.
process_state state_in(const char* text) noexcept {
  const char* const name_ends = std::strrchr(text, ')');
  if (name_ends == nullptr || name_ends[1] != ' ' || name_ends[2] == '\0') return process_state::unknown;
  const char letter = name_ends[2];
  if (letter == 'R') return process_state::runs;
  if (letter == 'T' || letter == 't') return process_state::stopped;
  return letter == 'Z' || letter == 'X' ? process_state::gone : process_state::sleeps;
}

// The state in this file, `if_empty` if the process has ended meanwhile; empty, with errno, if there is no file.
std::optional<process_state> read_state(const char* path, process_state if_empty) noexcept {
  const unique_fd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  char text[128];
  ssize_t got;
  do {
    got = ::read(file.get(), text, sizeof text - 1);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return if_empty;
  text[got] = '\0';
  return state_in(text);
}

}  // namespace

process_state state_of_process(std::int64_t pid) noexcept {
  if (pid <= 0) return process_state::unknown;
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  return read_state(path, process_state::unknown).value_or(process_state::unknown);
}

process_state state_of_thread(std::int64_t pid, std::int64_t tid) noexcept {
  if (pid <= 0) return process_state::unknown;
  char path[80];
  std::snprintf(path, sizeof path, "/proc/%lld/task/%lld/stat", static_cast<long long>(pid),
                static_cast<long long>(tid));
  if (const auto read = read_state(path, process_state::gone)) return *read;
  if (errno != ENOENT && errno != ESRCH) return process_state::unknown;
  return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH ? process_state::gone
                                                                   : process_state::unknown;
}

}  // namespace tutti::base
