// SPDX-License-Identifier: Apache-2.0
#include "track/append_file.hpp"

#include "base/files.hpp"
#include "base/text.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tutti/error.hpp>

namespace tutti::track {

append_file::append_file(const std::filesystem::path& path)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!file_)
    throw error(errc::system, "tracking cannot write " + path.string() + ": " + base::errno_text(errno));
}

bool append_file::lock() noexcept {
  // A file system without locks cannot report another writer.
  return ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

std::uint64_t append_file::size() const noexcept {
  const off_t end = ::lseek(file_.get(), 0, SEEK_END);
  return end > 0 ? static_cast<std::uint64_t>(end) : 0;
}

int append_file::cut_to_whole_lines() noexcept {
  char block[4096];
  const std::uint64_t all = size();
  std::uint64_t end = all;
  while (end > 0) {
    const std::uint64_t begin = end - std::min<std::uint64_t>(end, sizeof block);
    const ssize_t n = ::pread(file_.get(), block, end - begin, static_cast<off_t>(begin));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    const std::size_t newline = std::string_view(block, static_cast<std::size_t>(n)).rfind('\n');
    end = newline == std::string_view::npos ? begin : begin + newline + 1;
    if (newline != std::string_view::npos) break;
  }
  return end == all || ::ftruncate(file_.get(), static_cast<off_t>(end)) == 0 ? 0 : errno;
}

int append_file::append(std::string_view bytes) noexcept {
  const std::size_t written = base::write_all(file_.get(), bytes);
  if (written == bytes.size()) return 0;
  const int code = errno;
  // If that fails, too, a reader finds a line that is cut short.
  if (written > 0) {
    [[maybe_unused]] const int undone = ::ftruncate(file_.get(), static_cast<off_t>(size() - written));
  }
  return code;
}

}  // namespace tutti::track
