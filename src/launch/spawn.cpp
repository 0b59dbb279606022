// SPDX-License-Identifier: Apache-2.0
// The launcher of tutti::spawn: that of tutti-run, in the process that calls it.
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tutti/spawn.hpp>
#include <vector>

#include "base/env.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "bootstrap/starters.hpp"
#include "launch/options.hpp"

namespace tutti::detail {
namespace {

// As this process was started, including empty arguments.
std::vector<std::string> own_arguments() {
  const std::string text = base::contents_of("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::size_t at = 0, end; (end = text.find('\0', at)) != std::string::npos; at = end + 1)
    arguments.push_back(text.substr(at, end - at));
  if (arguments.empty()) throw std::runtime_error("/proc/self/cmdline is empty: is /proc mounted?");
  return arguments;
}

// The file's own name, so that `ps` shows it; the link itself if the file has since been replaced or removed.
std::string own_executable() {
  const std::string link = "/proc/self/exe";
  const std::string path = std::filesystem::read_symlink(link).string();
  std::error_code failed;
  return std::filesystem::equivalent(path, link, failed) ? path : link;
}

// Whether a starter has told this process its place, or its options do.
bool is_rank(int ranks, const init_options& options) {
  const bootstrap::place place = bootstrap::find_place();
  if (!place.rank.value) return options.rank >= 0;
  if (place.size.value && *place.size.value != ranks && *place.rank.value == 0)
    base::log_warning(
        fmt::format("tutti::spawn asks for {} ranks, but this program was started with {}: the "
                    "starter's number counts",
                    ranks, place.size.from));
  return true;
}

}  // namespace

std::optional<int> run_as_launcher(int ranks, const init_options& options) noexcept {
  try {
    static std::atomic_flag called;
    if (ranks < 1 || ranks > launch::most_ranks_per_node)
      bootstrap::refuse("tutti::spawn with {} ranks: give a number from 1 to {}", ranks,
                        launch::most_ranks_per_node);
    if (called.test_and_set())
      bootstrap::refuse(
          "tutti::spawn was called before in this process: call it once, as `return tutti::spawn(...)` in "
          "main(); for groups of ranks there are communicator::split and group, for threads run_local");
    if (is_rank(ranks, options)) return std::nullopt;
    std::fflush(nullptr);  // earlier output comes before that of the ranks
    launch::options o;
    o.ranks = ranks;
    o.trace = base::env_string("TUTTI_TRACE").value_or("");
    o.program = own_arguments();
    return launch::run_job(o, own_executable());
  } catch (const std::exception& e) {
    base::log_error(e.what());
    return 1;
  }
}

}  // namespace tutti::detail
