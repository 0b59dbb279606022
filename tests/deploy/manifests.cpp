// SPDX-License-Identifier: Apache-2.0
#include "manifests.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

namespace deploy {
namespace {

// The first Python with the module yaml, or any Python: a user's environment may lack the module of Debian's.
const std::string& python() {
  static const std::string found = [] {
    for (const std::string name : {"python3", "/usr/bin/python3"})
      if (tutti::test::run_shell(name + " -c 'import yaml'").exit_code == 0) return name;
    return std::string("python3");
  }();
  return found;
}

}  // namespace

std::filesystem::path file(const std::string& name) {
  return std::filesystem::path(TUTTI_SOURCE_DIR) / "deploy" / name;
}

std::vector<std::filesystem::path> manifests() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(file("kubernetes")))
    found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

tutti::test::command_result check_manifests(const std::string& arguments) {
  const std::string script = TUTTI_SOURCE_DIR "/tests/deploy/check_manifests.py";
  return tutti::test::run_shell(python() + " -B " + tutti::test::quoted(script) + " " + arguments);
}

bool has_yaml() { return tutti::test::run_shell(python() + " -c 'import yaml'").exit_code == 0; }

std::vector<pod> pods_of(const std::filesystem::path& manifest) {
  const auto result = check_manifests("--pods " + tutti::test::quoted(manifest.string()));
  REQUIRE_MESSAGE(result.exit_code == 0, result.output);
  std::vector<pod> pods;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t space = line.find(' ');
    const std::string kind = line.substr(0, space), value = line.substr(space + 1);
    if (kind == "pod") {
      pods.push_back({value, {}, {}, {}});
      continue;
    }
    REQUIRE_MESSAGE(!pods.empty(), line);
    pod& last = pods.back();
    if (kind == "variable")
      last.variables.push_back(value);
    else if (kind == "secret")
      last.variables.push_back(value + "=s");
    else if (kind == "option")
      last.options.push_back(value);
    else if (kind == "program")
      last.program.push_back(value);
    else
      FAIL(line);
  }
  return pods;
}

}  // namespace deploy
