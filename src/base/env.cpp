// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"

#include "base/text.hpp"
#include "base/throw_error.hpp"

#include <cstdlib>
#include <tutti/error.hpp>

namespace tutti::base {

std::optional<std::string> env_string(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string(text);
}

std::optional<std::int64_t> env_integer(const char* name, std::int64_t low, std::int64_t high) {
  const auto text = env_string(name);
  if (!text) return std::nullopt;
  const auto value = to_number<std::int64_t>(*text);
  if (!value || *value < low || *value > high)
    base::throw_error(errc::invalid_argument,
                      "the environment variable {}='{}' is not an integer between {} and {}: correct it or "
                      "unset it",
                      name, *text, low, high);
  return value;
}

}  // namespace tutti::base
