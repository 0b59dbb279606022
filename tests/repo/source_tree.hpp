// SPDX-License-Identifier: Apache-2.0
// The repository as its own tests read it: files, their text without comments and literals, their includes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace repo {

namespace fs = std::filesystem;

// The root of the source tree this test was built from.
fs::path root();

// Paths relative to the root, with '/', sorted, of the files below `directory` that end in one of
// `extensions`. Empty when there is no such directory.
std::vector<std::string> files_below(const std::string& directory,
                                     const std::vector<std::string>& extensions);

// The whole file; fails the test when it cannot be read.
std::string read(const std::string& path);

// `text` with comments and the insides of literals blanked, so that a rule sees only code; line numbers stay.
std::string code_only(std::string_view text);

int line_of(std::string_view text, std::size_t position);

struct include_directive {
  std::string name;
  bool quoted = false;
  int line = 0;
};
std::vector<include_directive> includes_of(std::string_view text);

// A failing CHECK that shows every finding, one a line; passes when there are none.
void check_none(const std::vector<std::string>& findings, const char* rule);

}  // namespace repo
