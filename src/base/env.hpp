// SPDX-License-Identifier: Apache-2.0
// Reads the environment. Absent and empty are the same; a malformed number is an error that names the
// variable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tutti::base {

std::optional<std::string> env_string(const char* name);
// Throws tutti::error (errc::invalid_argument), naming the variable and its text, unless it is an integer in
// [low, high].
std::optional<std::int64_t> env_integer(const char* name, std::int64_t low = INT64_MIN,
                                        std::int64_t high = INT64_MAX);

}  // namespace tutti::base
