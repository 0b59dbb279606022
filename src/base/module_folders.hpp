// SPDX-License-Identifier: Apache-2.0
// Where parts of tutti that are opened at run time are looked for, by programs that are installed, and by
// those that are not.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::base {

// Beside the program, in the `lib` beside its `bin`, and where tutti is installed; the nearest first.
std::vector<std::filesystem::path> module_folders();
// The same in one line, for error texts.
std::string list_of(const std::vector<std::filesystem::path>& folders);

}  // namespace tutti::base
