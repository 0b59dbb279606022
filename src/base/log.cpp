// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace tutti::base {
namespace {

constexpr std::string_view names[] = {"error", "warning", "info", "debug"};

thread_local int this_rank = -1;

void write_line(log_level level, std::string_view text) noexcept {
  const std::string rank = this_rank >= 0 ? fmt::format("[{}]", this_rank) : std::string();
  char line[2048];
  const auto written = fmt::format_to_n(line, sizeof line, "tutti{} {}: {}\n", rank,
                                        names[static_cast<int>(level)], text.substr(0, 1900));
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, line, written.size);
}

// The first call warns of a value that is none of the names.
log_level threshold() noexcept {
  static const log_level level = [] {
    const char* const wanted = std::getenv("TUTTI_LOG");
    if (wanted == nullptr || *wanted == '\0') return log_level::warning;
    for (int i = 0; i < 4; ++i)
      if (names[i] == wanted) return static_cast<log_level>(i);
    write_line(log_level::warning,
               fmt::format("TUTTI_LOG='{}' is none of error, warning, info and debug; warning is used",
                           std::string_view(wanted).substr(0, 60)));
    return log_level::warning;
  }();
  return level;
}

}  // namespace

bool log_enabled(log_level level) noexcept { return level <= threshold(); }

void set_log_rank(int rank) noexcept {
  this_rank = rank;
  threshold();  // a rank that logs nothing is told of a wrong TUTTI_LOG, too
}

void log(log_level level, std::string_view text) noexcept {
  if (log_enabled(level)) write_line(level, text);
}

}  // namespace tutti::base
