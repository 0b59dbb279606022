// SPDX-License-Identifier: Apache-2.0
// Where programs, installed or not, look for parts of tutti that are opened at run time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::base {

// Returns these folders, each once, the nearest first. Beside the program, and in the `lib` beside its `bin`.
// Beside the library that tutti is linked into. Where the dynamic linker searches for that program or
// library, including its RUNPATH. Where tutti was to be installed when it was built. Programs linked by
// tuttiConfig.cmake or tutti.pc have the directory of the modules in their RUNPATH, wherever tutti was
// installed.
std::vector<std::filesystem::path> module_folders();
// The same in one line, for error texts.
std::string list_of(const std::vector<std::filesystem::path>& folders);

}  // namespace tutti::base
