// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>
#include <tutti/train/replace_file.hpp>

namespace tutti {
namespace {

struct opened {
  opened(const std::filesystem::path& path, int flags) : fd(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  opened(const opened&) = delete;
  opened& operator=(const opened&) = delete;
  ~opened() {
    if (fd >= 0) ::close(fd);
  }
  const int fd;
};

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(), path.string());
}

void write_to_disk(const opened& file, const std::filesystem::path& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(file.fd, content.data(), content.size());
    if (n < 0 && errno != EINTR) fail(path);
    if (n > 0) content.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fsync(file.fd) != 0) fail(path);
}

}  // namespace

void replace_file(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::path beside = path, folder = path.parent_path();
  // Each call has a new file of its own: other ranks may replace the same file.
  beside += fmt::format(".new{:08x}", std::random_device()());
  const opened file(beside, O_WRONLY | O_CREAT | O_EXCL);
  if (file.fd < 0) fail(beside);
  try {
    write_to_disk(file, beside, content);
    std::filesystem::rename(beside, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw;
  }
  if (folder.empty()) folder = ".";
  const opened names(folder, O_RDONLY | O_DIRECTORY);
  if (names.fd < 0 || ::fsync(names.fd) != 0) fail(folder);
}

}  // namespace tutti
