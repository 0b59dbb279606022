// SPDX-License-Identifier: Apache-2.0
#include "base/module_folders.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <system_error>

namespace tutti::base {

namespace fs = std::filesystem;

namespace {

// The program, whose name is empty here, or the library that contains this code; null: it is not known.
link_map* find_own_object() {
  static const char here = 0;
  Dl_info info{};
  link_map* map = nullptr;
  return ::dladdr1(&here, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 ? map : nullptr;
}

std::vector<fs::path> searched_for(void* handle) {
  std::vector<fs::path> folders;
  Dl_serinfo size{};
  if (handle == nullptr || ::dlinfo(handle, RTLD_DI_SERINFOSIZE, &size) != 0) return folders;
  const std::unique_ptr<std::byte[]> memory(new std::byte[size.dls_size]);
  auto* const found = reinterpret_cast<Dl_serinfo*>(memory.get());
  if (::dlinfo(handle, RTLD_DI_SERINFOSIZE, found) != 0 || ::dlinfo(handle, RTLD_DI_SERINFO, found) != 0)
    return folders;
  for (unsigned i = 0; i < found->dls_cnt; ++i) folders.emplace_back(found->dls_serpath[i].dls_name);
  return folders;
}

}  // namespace

std::vector<fs::path> module_folders() {
  std::vector<fs::path> folders;
  const auto add = [&folders](const fs::path& folder) {
    const fs::path plain = folder.lexically_normal();
    if (folder.is_absolute() && std::ranges::find(folders, plain) == folders.end()) folders.push_back(plain);
  };
  const auto add_beside = [&add](const fs::path& file) {  // nothing for an empty path
    const fs::path beside = file.parent_path();
    add(beside);
    if (beside.filename() != "bin") return;
    add(beside.parent_path() / TUTTI_INSTALL_LIBDIR);
    add(beside.parent_path() / "lib");
  };
  std::error_code failed;
  add_beside(fs::read_symlink("/proc/self/exe", failed));
  link_map* const own = find_own_object();
  if (own != nullptr && own->l_name != nullptr) add_beside(own->l_name);
  for (const fs::path& folder : searched_for(own)) add(folder);
  add(TUTTI_INSTALL_FULL_LIBDIR);
  return folders;
}

std::string list_of(const std::vector<fs::path>& folders) {
  std::string text;
  for (const fs::path& folder : folders) text += (text.empty() ? "" : ", ") + folder.string();
  return text;
}

}  // namespace tutti::base
