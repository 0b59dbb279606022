// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tutti::base {
namespace {

constexpr std::string_view names[] = {"error", "warning", "info", "debug"};

log_level threshold() noexcept {
  static const log_level level = [] {
    const char* wanted = std::getenv("TUTTI_LOG");
    for (int i = 0; wanted != nullptr && i < 4; ++i)
      if (names[i] == wanted) return static_cast<log_level>(i);
    return log_level::warning;
  }();
  return level;
}

thread_local int this_rank = -1;

}  // namespace

bool log_enabled(log_level level) noexcept { return level <= threshold(); }

void set_log_rank(int rank) noexcept { this_rank = rank; }

void log(log_level level, std::string_view text) noexcept {
  if (!log_enabled(level)) return;
  char line[2048];
  const std::string_view name = names[static_cast<int>(level)];
  const int length = static_cast<int>(text.size() < 1900 ? text.size() : 1900);
  const int written = this_rank >= 0
                          ? std::snprintf(line, sizeof line, "tutti[%d] %.*s: %.*s\n", this_rank,
                                          static_cast<int>(name.size()), name.data(), length, text.data())
                          : std::snprintf(line, sizeof line, "tutti %.*s: %.*s\n",
                                          static_cast<int>(name.size()), name.data(), length, text.data());
  if (written > 0) {
    [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, line, static_cast<std::size_t>(written));
  }
}

}  // namespace tutti::base
