// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tutti::base {
namespace {

constexpr std::string_view names[] = {"error", "warning", "info", "debug"};

thread_local int this_rank = -1;

void write_line(log_level level, std::string_view text) noexcept {
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

// The first call warns of a value that is none of the names.
log_level threshold() noexcept {
  static const log_level level = [] {
    const char* const wanted = std::getenv("TUTTI_LOG");
    if (wanted == nullptr || *wanted == '\0') return log_level::warning;
    for (int i = 0; i < 4; ++i)
      if (names[i] == wanted) return static_cast<log_level>(i);
    char text[200];
    const int length =
        std::snprintf(text, sizeof text,
                      "TUTTI_LOG='%.60s' is none of error, warning, info and debug; warning is used", wanted);
    write_line(log_level::warning, {text, static_cast<std::size_t>(length)});
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
