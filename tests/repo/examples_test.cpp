// SPDX-License-Identifier: Apache-2.0
// The commands in the first lines of an example name programs that are built.
#include "repo/source_tree.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cstddef>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::set<std::string> examples_built_by(const std::string& cmake) {
  const std::regex target("tutti_example\\((\\w+)\\s");
  std::set<std::string> names;
  for (std::sregex_iterator i(cmake.begin(), cmake.end(), target), end; i != end; ++i) names.insert((*i)[1]);
  return names;
}

// Lines of `text` that begin with `command` and run none of `programs`.
std::vector<std::string> lines_that_run_none_of(const std::set<std::string>& programs,
                                                const std::string& text,
                                                const std::string& command = "//   tutti-run ") {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(command, 0) != 0) continue;
    std::istringstream words(line);
    bool named = false;
    for (std::string word; words >> word;) named = named || programs.contains(word);
    if (!named) found.push_back(line);
  }
  return found;
}

}  // namespace

TEST_CASE("commands in the examples' headers name programs that are built") {
  const std::set<std::string> programs = examples_built_by(repo::read("examples/CMakeLists.txt"));
  CHECK(programs.contains("hello"));
  std::vector<std::string> wrong;
  for (const std::string& path : repo::files_below("examples", {".cpp"}))
    for (const std::string& line : lines_that_run_none_of(programs, repo::read(path)))
      wrong.push_back(path + ": " + line);
  repo::check_none(wrong, "no example of that name in examples/CMakeLists.txt:");
}

TEST_CASE("each program of the tutorial has at most 100 lines, and its command in the header") {
  constexpr std::ptrdiff_t most_lines = 100;
  const std::set<std::string> programs = examples_built_by(repo::read("examples/CMakeLists.txt"));
  std::vector<std::string> wrong;
  for (const std::string& path : repo::files_below("examples/tutorial", {".cpp"})) {
    const std::string text = repo::read(path);
    if (std::count(text.begin(), text.end(), '\n') > most_lines) wrong.push_back(path + " is longer");
    if (text.find("\n//   ") == text.npos) wrong.push_back(path + " names no command");
    for (const std::string& line : lines_that_run_none_of(programs, text, "//   "))
      wrong.push_back(path + ": " + line);
  }
  repo::check_none(wrong, "programs of the tutorial that are too long, or run by no command:");
}

TEST_CASE("each program of examples/only_here has at most 60 lines, and its command in the header") {
  constexpr std::ptrdiff_t most_lines = 60;
  const std::set<std::string> programs = examples_built_by(repo::read("examples/CMakeLists.txt"));
  const std::vector<std::string> paths = repo::files_below("examples/only_here", {".cpp"});
  CHECK(paths.size() == 16);
  std::vector<std::string> wrong;
  for (const std::string& path : paths) {
    const std::string text = repo::read(path);
    if (std::count(text.begin(), text.end(), '\n') > most_lines) wrong.push_back(path + " is longer");
    if (text.find("\n//   ") == text.npos) wrong.push_back(path + " names no command");
    for (const std::string& line : lines_that_run_none_of(programs, text, "//   "))
      wrong.push_back(path + ": " + line);
  }
  repo::check_none(wrong, "programs of examples/only_here that are too long, or run by no command:");
}

TEST_CASE("a command without a program is found") {
  CHECK(lines_that_run_none_of({"a"}, "//   tutti-run -n 2 ./a\n//   tutti-run -n 2 a --b\n").size() == 1);
}
