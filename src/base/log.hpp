// SPDX-License-Identifier: Apache-2.0
// Diagnostics on stderr, one line each, written in one call so that lines of several ranks do not mix.
// TUTTI_LOG=error|warning|info|debug selects the least severe line shown; the default is warning.
#pragma once

#include <string_view>

namespace tutti::base {

enum class log_level { error, warning, info, debug };

bool log_enabled(log_level level) noexcept;
// Writes "tutti[rank] level: text\n"; never throws, and allocates only the line.
void log(log_level level, std::string_view text) noexcept;
// The rank that marks this thread's lines; -1 (initially) prints none.
void set_log_rank(int rank) noexcept;

inline void log_error(std::string_view text) noexcept { log(log_level::error, text); }
inline void log_warning(std::string_view text) noexcept { log(log_level::warning, text); }
inline void log_info(std::string_view text) noexcept { log(log_level::info, text); }

}  // namespace tutti::base
