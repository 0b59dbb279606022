// SPDX-License-Identifier: Apache-2.0
// Whole files: all of their bytes, in as many calls as it takes.
#pragma once

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::base {

// None if the file cannot be read.
inline std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  // It also fails where reading does, as of a process that ends after open(). By iterators it would be a byte at a time.
  if (!(content << file.rdbuf())) return {};
  return std::move(content).str();
}

// Opens a regular file to read it; empty, with errno, if there is none. Another kind may wait for a writer, or never end.
inline unique_fd open_regular(const std::filesystem::path& path, int flags = 0) noexcept {
  unique_fd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags));
  struct stat facts{};
  if (!file || ::fstat(file.get(), &facts) != 0) return {};
  if (S_ISREG(facts.st_mode)) return file;
  errno = S_ISDIR(facts.st_mode) ? EISDIR : EINVAL;
  return {};
}

// Returns how many bytes were written; if that is not all of them, errno says why.
inline std::size_t write_all(int fd, std::string_view bytes) noexcept {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n >= 0)
      done += static_cast<std::size_t>(n);
    else if (errno != EINTR)
      break;
  }
  return done;
}

}  // namespace tutti::base
