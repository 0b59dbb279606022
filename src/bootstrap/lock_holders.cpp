// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/lock_holders.hpp"

#include "base/process_state.hpp"
#include "base/text.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace tutti::bootstrap {
namespace {

namespace fs = std::filesystem;

// The kernel lists in fdinfo the locks that were taken through the descriptor:
// "lock:	1: OFDLCK  ADVISORY  WRITE -1 00:1b:77 0 0", with the first and the last byte at the end.
bool locks_first_byte(const fs::path& fdinfo) {
  std::ifstream file(fdinfo);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("lock:") && line.ends_with(" 0 0")) return true;
  return false;
}

bool holds_lock(const fs::path& process, const struct stat& file) {
  std::error_code failed;
  for (fs::directory_iterator fd(process / "fd", failed), end; !failed && fd != end; fd.increment(failed)) {
    struct stat other{};
    if (::stat(fd->path().c_str(), &other) == 0 && other.st_dev == file.st_dev &&
        other.st_ino == file.st_ino && locks_first_byte(process / "fdinfo" / fd->path().filename()))
      return true;
  }
  return false;
}

std::string description(pid_t pid) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
  return fmt::format("process {}{}{}", pid, name.empty() ? "" : fmt::format(" ({})", name),
                     base::state_of_process(pid) == base::process_state::stopped ? ", which is stopped" : "");
}

}  // namespace

std::vector<pid_t> lock_holders(int fd) {
  std::vector<pid_t> holders;
  struct stat file{};
  if (::fstat(fd, &file) != 0) return holders;
  std::error_code failed;
  for (fs::directory_iterator entry("/proc", failed), end; !failed && entry != end; entry.increment(failed))
    if (const auto pid = base::to_number<pid_t>(entry->path().filename().string());
        pid && holds_lock(entry->path(), file))
      holders.push_back(*pid);
  std::ranges::sort(holders);
  return holders;
}

std::string list_of_processes(const std::vector<pid_t>& pids) {
  std::string text;
  for (const pid_t pid : pids) text += (text.empty() ? "" : " and ") + description(pid);
  return text;
}

}  // namespace tutti::bootstrap
