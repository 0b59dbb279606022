// SPDX-License-Identifier: Apache-2.0
#include "common/sizes.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <system_error>

namespace perf {
namespace {

[[noreturn]] void refuse(std::string_view word, const char* why) {
  throw std::invalid_argument(
      "'" + std::string(word) + "' " + why +
      "; write sizes as 8, 64KiB, 1MiB (1 GiB at most), a list as 8,1KiB, a range as 8..1MiB");
}

std::size_t unit_of(std::string_view word, std::string_view suffix) {
  if (suffix.empty() || suffix == "B") return 1;
  const bool well_formed = suffix.size() == 1 || suffix.substr(1) == "iB";
  if (well_formed) switch (suffix[0]) {
      case 'k':
      case 'K':
        return std::size_t{1} << 10;
      case 'M':
        return std::size_t{1} << 20;
      case 'G':
        return std::size_t{1} << 30;
      default:
        break;
    }
  refuse(word, "has a unit that is none of B, KiB, MiB, GiB");
}

void append_range(std::vector<std::size_t>& sizes, std::string_view word, std::size_t dots) {
  const std::size_t first = parse_size(word.substr(0, dots));
  const std::size_t last = parse_size(word.substr(dots + 2));
  if (first == 0) refuse(word, "doubles from nothing: begin with 1 or more");
  if (last < first) refuse(word, "ends before it begins");
  for (std::size_t bytes = first; bytes <= last; bytes *= 2) sizes.push_back(bytes);
}

}  // namespace

std::size_t parse_size(std::string_view word) {
  std::size_t number = 0;
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (failure != std::errc()) refuse(word, "is not a size");
  const std::size_t unit = unit_of(word, word.substr(static_cast<std::size_t>(end - word.data())));
  if (number > most_size_bytes / unit) refuse(word, "is too large");
  return number * unit;
}

std::vector<std::size_t> parse_sizes(std::string_view list) {
  std::vector<std::size_t> sizes;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view word = list.substr(begin, end - begin);
    const std::size_t dots = word.find("..");
    if (dots != word.npos)
      append_range(sizes, word, dots);
    else
      sizes.push_back(parse_size(word));
    begin = end + 1;
  }
  return sizes;
}

std::string text_of_size(std::size_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + " " + units[unit];
}

}  // namespace perf
