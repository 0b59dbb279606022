// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_errors.hpp"

#include "base/text.hpp"

#include <fmt/format.h>

#include <tutti/error.hpp>
#include <tutti/store.hpp>

namespace tutti::bootstrap {

std::string title_of(std::string_view operation, const std::string& key, const std::string& store) {
  return fmt::format("{}('{}') on {}", operation, key, store);
}

void throw_missing_key(std::string_view operation, const std::string& key, const std::string& store,
                       std::chrono::milliseconds timeout) {
  if (timeout.count() == 0)
    throw error(errc::timed_out, fmt::format("{}('{}') on {}: there is no such key", operation, key, store));
  throw error(
      errc::timed_out,
      fmt::format(
          "{}('{}') on {}: nobody has set the key within {}; the rank that should has not come so far or "
          "has failed: look at its output, or allow more time (TUTTI_TIMEOUT, in seconds)",
          operation, key, store, base::duration_text(timeout)));
}

void throw_bad_add(const std::string& key, const std::string& store) {
  throw error(
      errc::invalid_argument,
      fmt::format(
          "add('{}') on {}: the key does not hold a decimal number, or the sum has more than 64 bits; use "
          "a key of its own for each counter",
          key, store));
}

void throw_too_long(const std::string& key, const std::string& store) {
  throw error(errc::resources,
              fmt::format("append('{}') on {}: the value would have more than {} bytes; spread it over "
                          "several keys",
                          key, store, tutti::store::largest_value));
}

}  // namespace tutti::bootstrap
