// SPDX-License-Identifier: Apache-2.0
#include "report/page_file.hpp"

#include "base/unique_fd.hpp"
#include "base/write_all.hpp"
#include "track/run_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tutti::report {

bool is_standard_output(const std::filesystem::path& path) noexcept {
  struct stat named{}, output{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &output) == 0 &&
         named.st_dev == output.st_dev && named.st_ino == output.st_ino;
}

bool write_page(const std::filesystem::path& path, const std::string& content) noexcept {
  if (is_standard_output(path)) return base::write_all(STDOUT_FILENO, content) == content.size();
  struct stat there{}, itself{};
  const bool is_link = ::lstat(path.c_str(), &itself) == 0 && S_ISLNK(itself.st_mode);
  if (::stat(path.c_str(), &there) == 0 ? !S_ISREG(there.st_mode) : is_link) {
    const base::unique_fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666));
    return fd && base::write_all(fd.get(), content) == content.size();
  }
  if (!is_link) return track::replace_file(path, content);
  std::error_code failed;
  const std::filesystem::path target = std::filesystem::canonical(path, failed);
  if (!failed) return track::replace_file(target, content);
  errno = failed.value();
  return false;
}

}  // namespace tutti::report
