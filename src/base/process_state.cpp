// SPDX-License-Identifier: Apache-2.0
#include "base/process_state.hpp"

#include "base/files.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace tutti::base {
namespace {

// What follows the name in "77 (name) S ...": the state and other fields. The name may contain anything.
std::string fields_after_name(const std::string& file) {
  const std::string text = contents_of(file);
  const std::size_t name_ends = text.rfind(") ");
  return name_ends == text.npos ? "" : text.substr(name_ends + 2);
}

process_state state_in(const std::string& file, std::int64_t pid) {
  const std::string fields = fields_after_name(file);
  if (fields.empty())
    return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH ? process_state::gone
                                                                     : process_state::unknown;
  const char letter = fields.front();
  if (letter == 'R') return process_state::runs;
  if (letter == 'T' || letter == 't') return process_state::stopped;
  return letter == 'Z' || letter == 'X' ? process_state::gone : process_state::sleeps;
}

}  // namespace

process_state state_of_process(std::int64_t pid) noexcept {
  if (pid <= 0) return process_state::unknown;
  const std::string file = fmt::format("/proc/{}/stat", pid);
  const process_state state = state_in(file, pid);
  if (state != process_state::gone) return state;
  // Its first thread may have ended before others.
  std::istringstream text(fields_after_name(file));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(text), {}};
  constexpr std::size_t threads = 17;
  return fields.size() > threads && fields[threads] != "1" && fields[threads] != "0" ? process_state::sleeps
                                                                                     : process_state::gone;
}

process_state state_of_thread(std::int64_t pid, std::int64_t tid) noexcept {
  return pid <= 0 ? process_state::unknown : state_in(fmt::format("/proc/{}/task/{}/stat", pid, tid), pid);
}

std::uint64_t start_of_process(std::int64_t pid) {
  std::istringstream text(fields_after_name(fmt::format("/proc/{}/stat", pid)));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(text), {}};
  if (fields.size() < 20 || fields[0] == "Z" || fields[0] == "X") return 0;
  return std::strtoull(fields[19].c_str(), nullptr, 10);
}

std::int64_t parent_of_process(std::int64_t pid) {
  const std::string fields = fields_after_name(fmt::format("/proc/{}/stat", pid));
  return fields.empty() ? 0 : std::strtoll(fields.c_str() + 1, nullptr, 10);
}

std::uint64_t namespace_of(const char* kind) noexcept {
  char path[32] = "";
  std::snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
  struct stat space = {};
  return ::stat(path, &space) == 0 ? space.st_ino : 0;
}

}  // namespace tutti::base
