// SPDX-License-Identifier: Apache-2.0
// Parsing digits.csv.gz.
#include "train_digits/digits.hpp"

#include "train_digits/gz_file.hpp"

#include <array>
#include <charconv>
#include <string>
#include <string_view>

namespace train_digits {
namespace {

constexpr int side = 8;
constexpr int darkest = 16;
constexpr std::size_t fields_per_line = side * side + 1;
constexpr std::size_t largest_file_bytes = std::size_t{64} << 20;

std::string read_all(gz_file& file) {
  std::string text;
  std::array<std::uint8_t, 1u << 16> slice{};
  for (std::size_t got = file.read(slice); got > 0; got = file.read(slice)) {
    text.append(slice.begin(), slice.begin() + static_cast<std::ptrdiff_t>(got));
    if (text.size() > largest_file_bytes) file.fail("is too large for a table of digits: more than 64 MiB");
  }
  return text;
}

int parse_field(const gz_file& file, std::string_view field, int largest, std::size_t line,
                std::size_t column) {
  int value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size() || value < 0 || value > largest) {
    file.fail("line " + std::to_string(line) + ", field " + std::to_string(column + 1) + ": \"" +
              std::string(field.substr(0, 20)) + "\" is not an integer from 0 to " + std::to_string(largest));
  }
  return value;
}

void parse_line(const gz_file& file, std::string_view text, std::size_t line, dataset& digits) {
  for (std::size_t column = 0; column < fields_per_line; ++column) {
    const bool last = column + 1 == fields_per_line;
    const std::size_t comma = text.find(',');
    if (last != (comma == std::string_view::npos)) {
      file.fail("line " + std::to_string(line) + " does not have the " + std::to_string(fields_per_line) +
                " fields of an 8 x 8 image and its digit");
    }
    const int value = parse_field(file, text.substr(0, comma), last ? classes - 1 : darkest, line, column);
    (last ? digits.labels : digits.pixels).push_back(static_cast<std::uint8_t>(value));
    if (!last) text.remove_prefix(comma + 1);
  }
}

}  // namespace

dataset read_digits_csv(const std::filesystem::path& path) {
  gz_file file(path);
  const std::string text = read_all(file);
  dataset digits;
  digits.rows = digits.columns = side;
  digits.darkest = darkest;
  std::size_t line = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    std::string_view one = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (one.ends_with('\r')) one.remove_suffix(1);
    parse_line(file, one, ++line, digits);
  }
  if (digits.size() == 0) file.fail("is empty");
  return digits;
}

}  // namespace train_digits
