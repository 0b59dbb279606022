// SPDX-License-Identifier: Apache-2.0
// The files of deploy/, and the pods that a cluster would start from its manifests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "support/command.hpp"

namespace deploy {

// The path of a file of deploy/, such as "kubernetes/jobset.yaml".
std::filesystem::path file(const std::string& name);
std::vector<std::filesystem::path> manifests();

// Runs tests/deploy/check_manifests.py.
tutti::test::command_result check_manifests(const std::string& arguments);
// Whether Python can read YAML here. A test that needs it is skipped with `no_yaml` otherwise.
bool has_yaml();
inline constexpr const char* no_yaml = "python3 has no module yaml (Debian: python3-yaml)";

struct pod {
  std::string first_host;              // where all pods reach node 0
  std::vector<std::string> variables;  // NAME=value; a name that refers to a Secret has the value "s"
  std::vector<std::string> options;    // of tutti-run
  std::vector<std::string> program;
};
std::vector<pod> pods_of(const std::filesystem::path& manifest);

}  // namespace deploy
