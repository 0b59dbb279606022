// SPDX-License-Identifier: Apache-2.0
// Error texts.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <string_view>

namespace tutti::base {

// "30 s", "1.5 s", "20 ms".
std::string duration_text(std::chrono::milliseconds d);

// The text of an errno value.
std::string errno_text(int code);
// The same for a file that could not be written, with the cure if there is one: "File too large; raise the
// limit of file sizes (ulimit -f)".
std::string write_error_text(int code);

// Short enough to need no memory itself.
inline constexpr const char* no_error_text = "(no memory)";

// Returns make(), or a text that needs no memory if there is none. For texts of a failure, which must be
// reported even then.
template <class Make>
std::string error_text(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::exception&) {
    return no_error_text;
  }
}

// The same for a copy.
inline void copy_error_text(std::string& to, std::string_view from) noexcept {
  try {
    to = from;
  } catch (const std::exception&) {
    to = no_error_text;
  }
}

}  // namespace tutti::base
