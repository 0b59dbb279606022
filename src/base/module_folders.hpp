// SPDX-License-Identifier: Apache-2.0
// Where parts of tutti that are opened at run time are looked for, by programs that are installed, and by
// those that are not.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::base {

// Beside the program and in the `lib` beside its `bin`; beside the library that tutti is linked into; where
// the dynamic linker searches for that program or library, its RUNPATH included; where tutti was to be
// installed when it was built. Each once, the nearest first. Programs linked by tuttiConfig.cmake or tutti.pc
// have the directory of the modules in their RUNPATH, wherever tutti was installed.
std::vector<std::filesystem::path> module_folders();
// The same in one line, for error texts.
std::string list_of(const std::vector<std::filesystem::path>& folders);

}  // namespace tutti::base
