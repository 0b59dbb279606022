// SPDX-License-Identifier: Apache-2.0
#include "repo/source_tree.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cctype>
#include <fstream>
#include <regex>
#include <sstream>

namespace repo {

fs::path root() { return fs::path(TUTTI_SOURCE_DIR); }

std::vector<std::string> files_below(const std::string& directory,
                                     const std::vector<std::string>& extensions) {
  std::vector<std::string> found;
  if (!fs::is_directory(root() / directory)) return found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root() / directory)) {
    const std::string extension = entry.path().extension().string();
    if (entry.is_regular_file() &&
        std::find(extensions.begin(), extensions.end(), extension) != extensions.end())
      found.push_back(entry.path().lexically_relative(root()).generic_string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string read(const std::string& path) {
  std::ifstream file(root() / path, std::ios::binary);
  REQUIRE_MESSAGE(file, "cannot read " << path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

namespace {

// The end of the literal or comment that begins at `at`; `at` itself if none begins there.
std::size_t end_of_non_code(std::string_view text, std::size_t at) {
  const auto past = [&](std::string_view end, std::size_t from) {
    const std::size_t found = text.find(end, from);
    return found == text.npos ? text.size() : found + end.size();
  };
  if (text.substr(at, 2) == "//") return std::min(text.find('\n', at), text.size());
  if (text.substr(at, 2) == "/*") return past("*/", at + 2);
  if (text.substr(at, 2) == "R\"") {
    const std::size_t parenthesis = text.find('(', at);
    if (parenthesis == text.npos) return text.size();
    return past(")" + std::string(text.substr(at + 2, parenthesis - at - 2)) + "\"", parenthesis);
  }
  const char quote = text[at];
  // 1'000: a digit separator, not a character.
  const bool separates_digits =
      quote == '\'' && at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;
  if ((quote != '"' && quote != '\'') || separates_digits) return at;
  std::size_t i = at + 1;
  while (i < text.size() && text[i] != quote && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size());
}

}  // namespace

std::string code_only(std::string_view text) {
  std::string code(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_non_code(text, at);
    for (std::size_t i = at; i < end; ++i)
      if (code[i] != '\n') code[i] = ' ';
    at = std::max(end, at + 1);
  }
  return code;
}

int line_of(std::string_view text, std::size_t position) {
  return 1 + static_cast<int>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
}

std::vector<include_directive> includes_of(std::string_view text) {
  static const std::regex pattern(R"(^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"])");
  std::vector<include_directive> found;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (std::regex_search(line, match, pattern)) found.push_back({match[2], match[1] == "\"", number});
  }
  return found;
}

void check_none(const std::vector<std::string>& findings, const char* rule) {
  std::string text = rule;
  for (const std::string& finding : findings) text += "\n  " + finding;
  CHECK_MESSAGE(findings.empty(), text);
}

}  // namespace repo
