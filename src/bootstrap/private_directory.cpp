// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/private_directory.hpp"

#include "base/env.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <tutti/error.hpp>

namespace tutti::bootstrap {
namespace {

// Does not follow a last symbolic link, which another user may have made.
bool is_mine_alone(const std::string& path, struct stat& status) {
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

}  // namespace

std::string private_directory() {
  struct stat status{};
  if (const auto runtime = base::env_string("XDG_RUNTIME_DIR"); runtime && is_mine_alone(*runtime, status))
    return *runtime + "/tutti";
  return fmt::format("/tmp/tutti-{}", ::geteuid());
}

void make_private_directory(const std::string& path) {
  struct stat status{};
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    base::throw_error(errc::system,
                      "cannot make the directory {}, in which the ranks of this host meet: {}; make it "
                      "possible, or set "
                      "MASTER_ADDR=127.0.0.1 and MASTER_PORT to a free port, the same on all ranks",
                      path, base::errno_text(errno));
  if (is_mine_alone(path, status) || errno == ENOENT) return;  // gone again: who opens a file in it will see
  base::throw_error(
      errc::invalid_argument,
      "{}, in which the ranks of this host meet, is not a directory of this user alone (uid {}, mode "
      "0700): remove it, or set XDG_RUNTIME_DIR to a directory that is",
      path, ::geteuid());
}

void leave_private_directory(const std::string& path) noexcept { ::rmdir(path.c_str()); }

}  // namespace tutti::bootstrap
