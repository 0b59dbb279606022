// SPDX-License-Identifier: Apache-2.0
// The repository for its own tests: files, their text without comments and literals, their includes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace repo {

namespace fs = std::filesystem;

// The root of the source tree this test was built from.
fs::path root();

// Paths of the files below `directory` with one of these extensions: relative to the root, with '/', sorted.
// Empty if the directory does not exist.
std::vector<std::string> files_below(const std::string& directory,
                                     const std::vector<std::string>& extensions);

// Reads the whole file. Fails the test if that is impossible.
std::string read(const std::string& path);

// `text` with comments and the contents of literals blanked, so that rules see only code. Line numbers stay.
std::string code_only(std::string_view text);

int line_of(std::string_view text, std::size_t position);

struct include_directive {
  std::string name;
  bool quoted = false;
  int line = 0;
};
std::vector<include_directive> includes_of(std::string_view text);

// A CHECK that fails with one line per finding, or passes if there are none.
void check_none(const std::vector<std::string>& findings, const char* rule);

}  // namespace repo
