// SPDX-License-Identifier: Apache-2.0
// --status: reads the flight recorders of running jobs where their launchers keep them. No rank notices.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/files.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "flight/explanation.hpp"
#include "flight/recordings.hpp"
#include "launch/options.hpp"

namespace tutti::launch {
namespace {

using identity = std::pair<dev_t, ino_t>;

// The processes that this user may look at, in the order of their numbers.
std::vector<int> processes() {
  std::vector<int> all;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored))
    if (const auto pid = base::to_number<int>(entry.path().filename().string())) all.push_back(*pid);
  std::ranges::sort(all);
  return all;
}

// The recordings that a process has open: a launcher has one, and so have its ranks.
base::unique_fd recordings_of(int pid) {
  std::error_code failed;
  const std::filesystem::path folder = fmt::format("/proc/{}/fd", pid);
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), failed).string();
    if (target.starts_with(fmt::format("/memfd:{}", flight::memory_name)))
      return base::unique_fd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
  }
  return {};
}

void print(int pid, const flight::recordings& all) {
  constexpr std::size_t recent = 8;
  std::string command = base::contents_of(fmt::format("/proc/{}/cmdline", pid));
  while (!command.empty() && command.back() == '\0') command.pop_back();
  std::ranges::replace(command, '\0', ' ');
  std::vector<flight::rank_snapshot> ranks;
  for (int i = 0; i < all.ranks(); ++i) {
    ranks.push_back(flight::read(all.of(i), recent));
    if (ranks.back().at == flight::phase::none) ranks.back().rank = i;
  }
  fmt::print("process {}: {}\n{}", pid, command, flight::explain(ranks));
}

}  // namespace

int run_status(const options& o) {
  std::vector<int> asked;
  for (const std::string& word : o.program) {
    const auto pid = base::to_number<int>(word);
    if (!pid)
      throw usage_error("--status {}: give the number of a process of a job, or nothing for all jobs", word);
    asked.push_back(*pid);
  }
  const bool all = asked.empty();
  std::set<identity> seen;
  int found = 0;
  for (const int pid : all ? processes() : asked) {
    const base::unique_fd fd = recordings_of(pid);
    struct stat status{};
    if (!fd || ::fstat(fd.get(), &status) != 0 || !seen.emplace(status.st_dev, status.st_ino).second)
      continue;
    ++found;
    try {
      print(pid, flight::recordings(fd.get()));
    } catch (const std::exception& e) {
      fmt::print("process {}: {}\n", pid, e.what());
    }
  }
  if (found > 0) return 0;
  fmt::print("{}\n", all ? "no job of tutti-run runs here that this user may look at"
                         : "no such process of a job runs here, or another user owns it");
  return 1;
}

}  // namespace tutti::launch
