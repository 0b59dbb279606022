// SPDX-License-Identifier: Apache-2.0
// Rules for every file: built by CMake, licensed by name, included safely.
#include "repo/source_tree.hpp"

#include <doctest/doctest.h>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

const std::vector<std::string> trees{"src", "include", "tests", "examples", "perf", "gpu"};

// Whether `name` is a whole word of a list in a CMakeLists.txt.
bool lists(const std::string& cmake, const std::string& name) {
  std::string escaped;
  for (const char c : name) escaped += (c == '.' || c == '+') ? std::string{'\\', c} : std::string(1, c);
  return std::regex_search(cmake, std::regex("(^|[\\s(/\"])" + escaped + "([\\s)\"]|$)"));
}

// Programs listed without their extension, as in foreach(name IN ITEMS hello ping).
bool built_by_cmake(const std::string& cmake, const std::string& name) {
  return lists(cmake, name) ||
         (cmake.find("${name}.cpp") != cmake.npos && lists(cmake, name.substr(0, name.size() - 4)));
}

}  // namespace

TEST_CASE("CMake lists every source") {
  std::vector<std::string> missing;
  for (const std::string tree : {"src", "tests", "examples", "perf", "gpu"}) {
    const auto sources = repo::files_below(tree, {".cpp"});
    if (sources.empty()) continue;
    for (const std::string& path : sources) {
      // The nearest CMakeLists.txt above the file.
      repo::fs::path folder = repo::fs::path(path).parent_path();
      while (!repo::fs::exists(repo::root() / folder / "CMakeLists.txt")) folder = folder.parent_path();
      const std::string name = repo::fs::path(path).lexically_relative(folder).generic_string();
      const std::string cmake = (folder / "CMakeLists.txt").generic_string();
      if (!built_by_cmake(repo::read(cmake), name)) missing.push_back(path + " is missing from " + cmake);
    }
  }
  repo::check_none(missing, "files that nothing builds:");
}

TEST_CASE("every file names its licence on the first line") {
  std::vector<std::string> unlicensed;
  for (const std::string& tree : trees)
    for (const std::string& path : repo::files_below(tree, {".cpp", ".hpp"}))
      if (repo::read(path).rfind("// SPDX-License-Identifier: Apache-2.0\n", 0) != 0)
        unlicensed.push_back(path);
  repo::check_none(unlicensed, "the first line is not `// SPDX-License-Identifier: Apache-2.0`:");
}

TEST_CASE("tutti.hpp is quick to compile: it includes no heavy header of the standard library for one use") {
  // Each takes a tenth of the time of Asio's io_context.hpp and awaitable.hpp, but for some of those named last.
  const std::set<std::string> heavy{"algorithm", "complex", "future", "ranges", "regex", "iostream",
                                    "sstream",   "fstream", "format", "map",    "random"};
  std::vector<std::string> findings;
  std::set<std::string> seen;
  std::vector<std::string> to_read{"tutti/tutti.hpp"};
  while (!to_read.empty()) {
    const std::string name = to_read.back();
    to_read.pop_back();
    if (!seen.insert(name).second) continue;
    for (const repo::include_directive& i : repo::includes_of(repo::read("include/" + name))) {
      if (i.name.rfind("tutti/", 0) == 0) to_read.push_back(i.name);
      if (heavy.contains(i.name)) findings.push_back("include/" + name + " includes <" + i.name + ">");
    }
  }
  CHECK(seen.size() > 40);
  repo::check_none(findings, "headers that every program would compile:");
}

TEST_CASE("every header may be included twice") {
  std::vector<std::string> unguarded;
  for (const std::string& tree : trees)
    for (const std::string& path : repo::files_below(tree, {".hpp"}))
      if (repo::read(path).find("\n#pragma once\n") == std::string::npos) unguarded.push_back(path);
  repo::check_none(unguarded, "no #pragma once:");
}

TEST_CASE("test cases are in *_test.cpp, because ctest runs the tests by those files") {
  std::vector<std::string> unreached;
  for (const std::string& path : repo::files_below("tests", {".cpp", ".hpp"})) {
    const bool test = path.size() > 9 && path.compare(path.size() - 9, 9, "_test.cpp") == 0;
    // In a macro it is of the file that uses that.
    if (!test && repo::code_only(repo::read(path)).find("\nTEST_CASE") != std::string::npos)
      unreached.push_back(path);
  }
  repo::check_none(unreached, "TEST_CASE where no test of ctest looks:");
}

TEST_CASE("CMake lists are matched by whole words") {
  CHECK(lists("add(\n  core/loop.cpp\n  a.cpp)", "core/loop.cpp"));
  CHECK(lists("add(a.cpp)", "a.cpp"));
  CHECK_FALSE(lists("add(core/my_loop.cpp)", "loop.cpp"));
  CHECK_FALSE(lists("add(loop.cpp.in)", "loop.cpp"));
  CHECK(built_by_cmake("foreach(name IN ITEMS hello ping)\n ${name}.cpp", "ping.cpp"));
  CHECK_FALSE(built_by_cmake("foreach(name IN ITEMS hello ping)\n ${name}.cpp", "pong.cpp"));
}
