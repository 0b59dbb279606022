// SPDX-License-Identifier: Apache-2.0
// Writes JSON: one object or array after the other, without a tree.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::track {

// In quotes. Bytes that are not UTF-8 become U+FFFD, so that every reader accepts the line.
std::string json_string(std::string_view text);
// The shortest text that reads back as the same number. Values that JSON lacks become "NaN", "Infinity" or
// "-Infinity", in quotes.
std::string json_number(double value);

class json_object {
 public:
  json_object& add(std::string_view key, std::string_view text) { return add_json(key, json_string(text)); }
  json_object& add(std::string_view key, double number) { return add_json(key, json_number(number)); }
  template <std::integral T>
  json_object& add(std::string_view key, T number) {
    if constexpr (std::same_as<T, bool>) {
      return add_json(key, number ? "true" : "false");
    } else {
      return add_json(key, std::to_string(number));
    }
  }
  json_object& add_json(std::string_view key, std::string_view json);
  std::string text() const { return body_.empty() ? "{}" : body_ + "}"; }

 private:
  std::string body_;
};

// An array of values that are JSON already.
std::string json_array(const std::vector<std::string>& items);

}  // namespace tutti::track
