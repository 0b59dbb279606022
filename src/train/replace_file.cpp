// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <random>
#include <system_error>
#include <tutti/train/replace_file.hpp>

namespace tutti {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(), path.string());
}

using open_file = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

open_file opened(const std::filesystem::path& path, const char* mode) {
  open_file file(std::fopen(path.c_str(), mode), std::fclose);
  if (!file) fail(path);
  return file;
}

}  // namespace

void replace_file(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::path beside = path, folder = path.parent_path();
  // Each call has a new file of its own: other ranks may replace the same file.
  beside += fmt::format(".new{:08x}", std::random_device()());
  const auto file = opened(beside, "wxe");
  try {
    const int fd = ::fileno(file.get());
    for (std::string_view rest = content; !rest.empty();) {
      const ssize_t n = ::write(fd, rest.data(), rest.size());
      if (n < 0 && errno != EINTR) fail(beside);
      if (n > 0) rest.remove_prefix(static_cast<std::size_t>(n));
    }
    if (::fsync(fd) != 0) fail(beside);
    std::filesystem::rename(beside, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw;
  }
  if (folder.empty()) folder = ".";
  if (::fsync(::fileno(opened(folder, "re").get())) != 0) fail(folder);
}

}  // namespace tutti
