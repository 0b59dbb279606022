// SPDX-License-Identifier: Apache-2.0
#include "core/process_state.hpp"

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tutti::core {

process_state state_of_process(std::int64_t pid) noexcept {
  if (pid <= 0) return process_state::unknown;
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  const base::unique_fd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return process_state::unknown;
  // "77 (name) S ...", and the name may hold anything.
  char text[128];
  ssize_t got;
  do {
    got = ::read(file.get(), text, sizeof text - 1);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return process_state::unknown;
  text[got] = '\0';
  const char* const name_ends = std::strrchr(text, ')');
  if (name_ends == nullptr || name_ends[1] != ' ') return process_state::unknown;
  switch (name_ends[2]) {
    case 'R':
      return process_state::runs;
    case 'T':
    case 't':
      return process_state::stopped;
    case 'Z':
    case 'X':
      return process_state::gone;
    default:
      return process_state::sleeps;
  }
}

}  // namespace tutti::core
