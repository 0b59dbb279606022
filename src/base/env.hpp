// SPDX-License-Identifier: Apache-2.0
// Reads the environment, and says what tutti reads there. Absent and empty are the same; a malformed number is an
// error that names the variable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti::base {

std::optional<std::string> env_string(const char* name);
// Throws tutti::error (errc::invalid_argument), naming the variable and its text, unless it is an integer in
// [low, high].
std::optional<std::int64_t> env_integer(const char* name, std::int64_t low = INT64_MIN,
                                        std::int64_t high = INT64_MAX);

// The environment variables that tutti reads or sets, in one table: `tutti-run --variables` prints it,
// docs/configuration.md shows it, and tests/repo/docs_test.py compares both with the code.
struct variable {
  std::string_view group;   // its title
  std::string_view name;    // or several of one meaning: "A, B"
  std::string_view values;  // as written, the default first where there is one; empty: set by starters
  std::string_view text;    // one line
};

// By group.
std::span<const variable> variables() noexcept;

}  // namespace tutti::base
