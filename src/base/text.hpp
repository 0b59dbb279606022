// SPDX-License-Identifier: Apache-2.0
// Texts for people (errors, times, ranks), and numbers in texts.
#pragma once

#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tutti::base {

// "30 s", "1.5 s", "20 ms".
std::string duration_text(std::chrono::milliseconds d);

// The text of an errno value.
std::string errno_text(int code);
// The same for a file that could not be written, with the cure if there is one: "File too large; raise the
// limit of file sizes (ulimit -f)".
std::string write_error_text(int code);

// "0-2, 5".
std::string rank_list(std::vector<int> ranks);
// "rank 5", "ranks 0-2, 5".
std::string ranks_text(std::vector<int> ranks);

// The number that the whole text is, in decimal; nullopt if it is none, or out of range.
template <class T>
std::optional<T> to_number(std::string_view text) {
  T number{};
  const char* const last = text.data() + text.size();
  const auto [end, code] = std::from_chars(text.data(), last, number);
  if (code != std::errc{} || end != last) return std::nullopt;
  return number;
}

}  // namespace tutti::base
