// SPDX-License-Identifier: Apache-2.0
#include "base/module_folders.hpp"

#include <system_error>

namespace tutti::base {

namespace fs = std::filesystem;

std::vector<fs::path> module_folders() {
  std::vector<fs::path> folders;
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  if (!failed) {
    const fs::path beside = program.parent_path();
    folders.push_back(beside);
    if (beside.filename() == "bin") {
      folders.push_back(beside.parent_path() / TUTTI_INSTALL_LIBDIR);
      if (folders.back().filename() != "lib") folders.push_back(beside.parent_path() / "lib");
    }
  }
  folders.emplace_back(TUTTI_INSTALL_FULL_LIBDIR);
  return folders;
}

std::string list_of(const std::vector<fs::path>& folders) {
  std::string text;
  for (const fs::path& folder : folders) text += (text.empty() ? "" : ", ") + folder.string();
  return text;
}

}  // namespace tutti::base
